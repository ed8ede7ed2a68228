"""Log records of a model in the server's log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import pytest

from backends.python.scripted import FakeRuntime
from penstock_backends.python.pb_utils.logger import Logger, ServerHandler


def line() -> int:
    """The line from which this is called."""
    return sys._getframe(1).f_lineno


@pytest.mark.parametrize(
    ("log", "level"),
    [
        (Logger.log_info, logging.INFO),
        (Logger.log_warn, logging.WARNING),
        (Logger.log_error, logging.ERROR),
        (Logger.log_verbose, logging.DEBUG),
        (Logger.log, logging.INFO),
    ],
)
def test_line_has_the_place_of_its_caller(
    process: FakeRuntime, log: Callable[[str], None], level: int
) -> None:
    here = line() + 1
    log("hello")
    assert process.logged == [(level, "hello", __file__, here)]


def test_level_may_be_given(process: FakeRuntime) -> None:
    Logger.log("hello", Logger.WARNING)
    Logger.log(message="hello", level=Logger.LogLevel.ERROR)
    assert [level for level, *_ in process.logged] == [logging.WARNING, logging.ERROR]


def test_without_a_server_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    here = line() + 1
    Logger.log_warn("early")
    assert capsys.readouterr().err == f"W test_logger.py:{here}] early\n"


def test_pythons_own_logging_can_join(process: FakeRuntime) -> None:
    logger = logging.Logger("model")
    logger.addHandler(ServerHandler())
    here = line() + 1
    logger.warning("%d left", 3)
    assert process.logged == [(logging.WARNING, "3 left", __file__, here)]
