"""`Logger`: log records of a model in the server's log, with file and line (contract L-09)."""

from __future__ import annotations

import logging
import os
import sys
from enum import IntEnum

from penstock_backends.python.pb_utils import arguments, runtime
from penstock_backends.python.pb_utils.arguments import Text, instance
from penstock_backends.python.pb_utils.exception import TritonModelException


class Logger:
    """Writes to the server's log, or to standard error where there is no link to the server."""

    class LogLevel(IntEnum):
        """Severity; VERBOSE records are shown from `--log-verbose=1` on."""

        INFO = 0
        WARNING = 1
        ERROR = 2
        VERBOSE = 3

    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    @staticmethod
    def log(message: Text, level: LogLevel = LogLevel.INFO) -> None:
        _log(instance(level, "level", Logger.LogLevel), message)

    @staticmethod
    def log_info(message: Text) -> None:
        _log(Logger.INFO, message)

    @staticmethod
    def log_warn(message: Text) -> None:
        _log(Logger.WARNING, message)

    @staticmethod
    def log_error(message: Text) -> None:
        _log(Logger.ERROR, message)

    @staticmethod
    def log_verbose(message: Text) -> None:
        _log(Logger.VERBOSE, message)


_LEVELS = {
    Logger.INFO: logging.INFO,
    Logger.WARNING: logging.WARNING,
    Logger.ERROR: logging.ERROR,
    Logger.VERBOSE: logging.DEBUG,
}


def _log(level: Logger.LogLevel, message: Text) -> None:
    """Log with the place of the caller's caller: the methods above are called by the model."""
    text = arguments.message(message, "message")
    caller = sys._getframe(2)
    file, line = caller.f_code.co_filename, caller.f_lineno
    try:
        log = runtime.current().log
    except TritonModelException:
        sys.stderr.write(f"{level.name[0]} {os.path.basename(file)}:{line}] {text}\n")
    else:
        log(_LEVELS[level], text, file, line)


class ServerHandler(logging.Handler):
    """Handler that sends the records of Python's logging to the server's log."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        runtime.current().log(record.levelno, text, record.pathname, record.lineno)
