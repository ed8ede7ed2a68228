"""The log has the line format, the switches and the escaping of `tritonserver`."""

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.settings import LogSettings
from penstock.telemetry.log_lines import LineFormatter
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


@pytest.mark.contract("L-01")
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
    logger.critical("d")
    captured = capsys.readouterr()
    assert messages(captured.out) == ['"a"']
    assert messages(captured.err) == ['"b"', '"c"', '"d"']
    assert [line[0] for line in captured.err.splitlines()] == ["W", "E", "E"]


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


@pytest.mark.contract("L-04", "SEC-09")
def test_a_message_cannot_forge_a_line(capsys: Capture) -> None:
    configure(LogSettings())
    logger.error('bad "name"\nE0101 forged \ud800é')
    assert messages(capsys.readouterr().err) == [r'"bad \"name\"\nE0101 forged \\ud800é"']


@pytest.mark.contract("L-04")
def test_escaping_can_be_turned_off(capsys: Capture) -> None:
    configure(LogSettings(escape=False))
    logger.error('two\nlines "quoted"')
    assert capsys.readouterr().err.endswith('] two\nlines "quoted"\n')


def test_a_traceback_keeps_its_lines(capsys: Capture) -> None:
    configure(LogSettings())
    try:
        raise ValueError("cause\nE0101 forged")
    except ValueError:
        logger.exception('the "first" line')
    first, start, *rest = capsys.readouterr().err.splitlines()
    assert first.endswith(r'] "the \"first\" line"')
    assert start == "    Traceback (most recent call last):"
    assert rest[-2:] == ["    ValueError: cause", "    E0101 forged"]
    assert any("test_logging.py" in line for line in rest)


def test_a_traceback_of_triton_keeps_its_lines(capsys: Capture) -> None:
    configure(LogSettings())
    logger.error("ValueError: two\nlines\n\nAt:\n  /m/1/model.py(3): \x1bexecute\r\n")
    assert messages(capsys.readouterr().err)[0] == r'"ValueError: two\nlines"'
    logger.error("ValueError: two\nlines\n\nAt:\n  /m/1/model.py(3): \x1bexecute\r\n")
    _, *rest = capsys.readouterr().err.splitlines()
    assert rest == ["    At:", r"      /m/1/model.py(3): \u001bexecute\u000d"]


def test_a_traceback_alone_is_a_message(capsys: Capture) -> None:
    configure(LogSettings())
    logger.error("Traceback (most recent call last):\n  File 'm'\nValueError: no\n")
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.endswith('] "Traceback (most recent call last):"')
    assert rest == ["      File 'm'", "    ValueError: no"]


@pytest.mark.contract("L-04", "SEC-09")
@given(st.text())
def test_no_message_begins_a_second_line_of_the_log(text: str) -> None:
    record = logging.makeLogRecord(
        {"levelno": logging.INFO, "msg": "%s", "args": (text,), "model": text}
    )
    first, *rest = LineFormatter(LogSettings()).format(record).splitlines()
    assert "] " in first
    assert all(line.startswith("    ") for line in rest)


def test_a_record_of_a_model_names_it(capsys: Capture) -> None:
    configure(LogSettings())
    logger.info("here", extra={"model": "m", "instance": "m_0_1"})
    logger.info("here", extra={"model": "m", "instance": "two words"})
    assert messages(capsys.readouterr().out) == [
        '"here" model=m instance=m_0_1',
        '"here" model=m instance="two words"',
    ]


def test_tables_stand_below_the_start_of_a_line(capsys: Capture) -> None:
    configure(LogSettings())
    log_table(logger, "+---+\n| A |\n+---+")
    start, *rest = capsys.readouterr().out.split("\n")
    assert re.fullmatch(r"I\d{4} .* \d+ test_logging\.py:\d+\] ", start)
    assert rest == ["+---+", "| A |", "+---+", "", ""]


@pytest.mark.contract("L-05")
def test_a_file_gets_everything_instead(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "log"
    configure(LogSettings(file=str(file)))
    logger.info("a")
    logger.error("b")
    assert messages(file.read_text()) == ['"a"', '"b"']
    assert capsys.readouterr() == ("", "")


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
    log.change({"log_format": "json"})
    logger.info("an object")
    assert json.loads(capsys.readouterr().out)["message"] == "an object"
    log.change({"log_info": False})
    logger.info("hidden")
    assert capsys.readouterr().out == ""
    assert log.current()["log_verbose_level"] == 1
    assert next(iter(log.current())) == "log_file"


def test_output_without_room_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with suppress(OSError), Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        configure(LogSettings())
        for number in range(200):
            logger.info("line %s of a log that finds no room", number)
        [line] = capsys.readouterr().err.splitlines()
    assert line.endswith('] "/dev/full is not writable: No space left on device"')


def test_errors_of_libraries_that_repeat_themselves_are_throttled(capsys: Capture) -> None:
    configure(LogSettings())
    library = logging.getLogger("library")
    for number in range(100):
        library.error("broken %d", number)
    for _ in range(12):
        library.error("of a model", extra={"instance": "m_0"})
        logger.error("our own")
    told = messages(capsys.readouterr().err)
    assert told[:10] == [f'"broken {number}"' for number in range(10)]
    assert sorted(told[10:]) == ['"of a model" instance=m_0'] * 12 + ['"our own"'] * 12
