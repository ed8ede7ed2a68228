"""The log has the line format, the switches and the escaping of `tritonserver`."""

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.settings import LogSettings
from penstock.telemetry.logging import ServerLog, configure, log_table

Capture = pytest.CaptureFixture[str]
logger = logging.getLogger("penstock.test")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Logging is the process's, so it is put back."""
    loggers = [logging.getLogger(name) for name in ("", "penstock", "penstock_backends")]
    before = [(logger, logger.level) for logger in loggers]
    yield
    for handler in list(loggers[0].handlers):
        if type(handler).__module__ == "penstock.telemetry.logging":
            loggers[0].removeHandler(handler)
            handler.close()
    for logger, level in before:
        logger.setLevel(level)


def messages(text: str) -> list[str]:
    return re.findall(r"\] (.*)", text)


@pytest.mark.contract("L-01")
def test_the_default_format(capsys: Capture) -> None:
    configure(LogSettings())
    logger.info("Started %s at %s", "HTTPService", "0.0.0.0:8000")
    line = capsys.readouterr().out
    assert re.fullmatch(
        rf"I\d{{4}} \d\d:\d\d:\d\d\.\d{{6}} {os.getpid()} test_logging\.py:\d+\] "
        r'"Started HTTPService at 0\.0\.0\.0:8000"\n',
        line,
    )


@pytest.mark.contract("L-02")
def test_the_iso_format(capsys: Capture) -> None:
    configure(LogSettings(format="ISO8601"))
    logger.error("no")
    assert re.fullmatch(
        rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ E {os.getpid()} test_logging\.py:\d+\] \"no\"\n",
        capsys.readouterr().err,
    )


def test_times_are_utc(capsys: Capture) -> None:
    configure(LogSettings())
    logger.handle(logging.makeLogRecord({"levelno": logging.INFO, "created": 1.5, "msg": "m"}))
    assert capsys.readouterr().out.startswith("I0101 00:00:01.500000 ")


@pytest.mark.contract("L-01")
def test_information_and_trouble_part(capsys: Capture) -> None:
    configure(LogSettings())
    logger.info("a")
    logger.warning("b")
    logger.error("c")
    captured = capsys.readouterr()
    assert messages(captured.out) == ['"a"']
    assert messages(captured.err) == ['"b"', '"c"']
    assert [line[0] for line in captured.err.splitlines()] == ["W", "E"]


@pytest.mark.contract("L-03")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (LogSettings(), ["i", "w", "e"]),
        (LogSettings(info=False), ["w", "e"]),
        (LogSettings(warning=False), ["i", "e"]),
        (LogSettings(error=False), ["i", "w"]),
        (LogSettings(verbose=1), ["i", "w", "e", "1"]),
        (LogSettings(verbose=2, info=False), ["w", "e", "1", "2"]),
    ],
)
def test_every_level_has_its_switch(
    settings: LogSettings, expected: list[str], capsys: Capture
) -> None:
    configure(settings)
    logger.info("i")
    logger.warning("w")
    logger.error("e")
    logger.debug("1")
    logger.log(logging.DEBUG - 1, "2")
    captured = capsys.readouterr()
    found = messages(captured.out) + messages(captured.err)
    assert sorted(found) == sorted(f'"{text}"' for text in expected)


def test_information_of_libraries_is_detail(capsys: Capture) -> None:
    library = logging.getLogger("library")
    configure(LogSettings())
    library.info("quiet")
    configure(LogSettings(verbose=1))
    library.info("asked for")
    assert messages(capsys.readouterr().out) == ['"asked for"']


@pytest.mark.contract("L-04")
def test_a_message_cannot_forge_a_line(capsys: Capture) -> None:
    configure(LogSettings())
    logger.error('bad "name"\nE0101 forged \ud800é')
    assert messages(capsys.readouterr().err) == [r'"bad \"name\"\nE0101 forged \\ud800é"']


@pytest.mark.contract("L-04")
def test_escaping_can_be_turned_off(capsys: Capture) -> None:
    configure(LogSettings(escape=False))
    logger.error('two\nlines "quoted"')
    assert capsys.readouterr().err.endswith('] two\nlines "quoted"\n')


def test_a_traceback_stays_on_its_line(capsys: Capture) -> None:
    configure(LogSettings())
    try:
        raise ValueError("cause")
    except ValueError:
        logger.exception("failed")
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert r'"failed\nTraceback' in line
    assert "ValueError: cause" in line


def test_tables_stand_below_the_start_of_a_line(capsys: Capture) -> None:
    configure(LogSettings())
    log_table(logger, "+---+\n| A |\n+---+")
    start, *rest = capsys.readouterr().out.split("\n")
    assert re.fullmatch(r"I\d{4} .* \d+ test_logging\.py:\d+\] ", start)
    assert rest == ["+---+", "| A |", "+---+", "", ""]


@pytest.mark.contract("L-05")
def test_a_file_gets_everything_as_well(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "log"
    configure(LogSettings(file=str(file)))
    logger.info("a")
    logger.error("b")
    captured = capsys.readouterr()
    assert file.read_text() == captured.out + captured.err


def test_a_file_that_cannot_be_opened_changes_nothing(tmp_path: Path, capsys: Capture) -> None:
    configure(LogSettings())
    with pytest.raises(OSError, match="No such file"):
        configure(LogSettings(file=str(tmp_path / "nowhere" / "log"), info=False))
    logger.info("still here")
    assert messages(capsys.readouterr().out) == ['"still here"']


def test_settings_can_change_while_running(capsys: Capture) -> None:
    configure(LogSettings(info=False))
    logger.info("a")
    configure(LogSettings())
    logger.info("b")
    assert messages(capsys.readouterr().out) == ['"b"']


@pytest.mark.contract("L-06")
def test_settings_act_when_they_are_changed(capsys: Capture) -> None:
    log = ServerLog(LogSettings(info=False))
    log.change({"log_info": True, "log_verbose_level": 1, "log_format": "ISO8601"})
    logger.debug("detail")
    assert re.fullmatch(r'\d{4}-\S+Z I \S+ \S+ "detail"\n', capsys.readouterr().out)
    log.change({"log_info": False})
    logger.info("hidden")
    assert capsys.readouterr().out == ""
    assert log.current()["log_verbose_level"] == 1
    assert next(iter(log.current())) == "log_file"
