"""A log file without room costs lines of the log and nothing else."""

import logging
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.telemetry.log_file import LogFile

Capture = pytest.CaptureFixture[str]


def record(text: str) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text})


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Files of this process cannot grow beyond `size` bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_lines_without_room_are_told_in_one_line(capsys: Capture) -> None:
    file = LogFile("/dev/full")
    for _ in range(100):
        file.handle(record("lost"))
    file.close()
    assert capsys.readouterr().err == (
        "log file '/dev/full' is not writable: No space left on device; lost lines: 1\n"
    )


def test_the_log_goes_on_when_there_is_room_again(tmp_path: Path, capsys: Capture) -> None:
    file = LogFile(str(tmp_path / "log"))
    file.handle(record("before"))
    with largest_file(10):
        file.handle(record("does not fit"))
        file.handle(record("nor does this"))
    file.handle(record("after"))
    file.handle(record("last"))
    file.close()
    assert (tmp_path / "log").read_text() == (
        "before\n"
        "doe\n"  # what the disk has taken of a line
        "lines missing here: 2, since the file was not writable: File too large\n"
        "after\n"
        "last\n"
    )
    assert re.findall(r"lost lines: (\d)", capsys.readouterr().err) == ["1"]


def test_a_file_is_continued(tmp_path: Path) -> None:
    for text in ("first", "second"):
        file = LogFile(str(tmp_path / "log"))
        file.handle(record(text))
        file.close()
    assert (tmp_path / "log").read_text() == "first\nsecond\n"


def test_arguments_that_do_not_fit_are_an_error_of_the_code(capsys: Capture) -> None:
    file = LogFile("/dev/full")
    file.handle(logging.makeLogRecord({"msg": "%d", "args": ("x",)}))
    file.close()
    assert "TypeError" in capsys.readouterr().err


def test_a_new_file_is_for_its_user_alone(tmp_path: Path) -> None:
    LogFile(str(tmp_path / "log")).close()
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
