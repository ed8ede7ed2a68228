"""The log: handlers and a formatter that write lines as `tritonserver` does.

Information goes to standard output, warnings and errors to standard error; if a log file is set,
everything goes there instead (L-05). Below INFO are the verbose levels: `DEBUG` is level 1, one
lower is level 2.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from logging import DEBUG, ERROR, INFO, WARNING, LogRecord
from typing import Any, TextIO

from penstock.core.log_throttle import LogThrottle
from penstock.settings import LogSettings
from penstock.telemetry.console import discard, write_line
from penstock.telemetry.log_file import LogFile, own_record

_OWN = ("penstock", "penstock_backends")

_NAMES = {
    "log_file": "file",
    "log_info": "info",
    "log_warning": "warning",
    "log_error": "error",
    "log_verbose_level": "verbose",
    "log_format": "format",
}
"""Settings by the protocol's names, in its order."""


def configure(settings: LogSettings) -> None:
    """Install the handlers that `settings` define, in place of those of an earlier call.

    Raises `OSError` if the log file cannot be opened; the handlers are then unchanged.
    """
    handlers = _handlers(settings)
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _OwnHandler)]:
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        root.addHandler(handler)
    # What libraries log below a warning is detail, shown with --log-verbose only.
    root.setLevel(INFO if settings.verbose else WARNING)
    for name in _OWN:
        logging.getLogger(name).setLevel(max(1, DEBUG + 1 - settings.verbose))


class ServerLog:
    """The log's settings, which clients may read and change (contract L-06)."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings

    def current(self) -> Mapping[str, bool | int | str]:
        """Every setting by its name in the protocol."""
        return {name: getattr(self._settings, field) for name, field in _NAMES.items()}

    def change(self, values: Mapping[str, bool | int | str]) -> None:
        """Apply changed settings from now on."""
        fields: dict[str, Any] = {_NAMES[name]: value for name, value in values.items()}
        self._settings = replace(self._settings, **fields)
        configure(self._settings)

    def reopen(self) -> None:
        """Open the log file anew, as after it was renamed; on failure the old one stays in use."""
        try:
            configure(self._settings)
        except OSError as error:
            logging.getLogger(__name__).error("the log file cannot be opened anew: %s", error)


def log_table(logger: logging.Logger, table: str) -> None:
    """Log a table below the line's prefix, without escaping."""
    logger.info("\n%s\n", table, stacklevel=2, extra={"verbatim": True})


class LineFormatter(logging.Formatter):
    """`I1121 16:30:00.123456 71 server.py:12] "message"`, or its ISO8601 form; times in UTC.

    A record with the attributes `model` and `instance` ends in their names. A traceback stands
    below its message, line by line and indented, so that none of its lines looks like a record's.
    """

    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self._iso = settings.format == "ISO8601"
        self._escape = settings.escape

    def format(self, record: LogRecord) -> str:
        place = f"{record.process} {record.filename}:{record.lineno}]"
        return f"{self._start(record)} {place} {self._message(record)}"

    def _start(self, record: LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        if self._iso:
            return f"{time:%Y-%m-%dT%H:%M:%SZ} {_letter(record)}"
        return f"{_letter(record)}{time:%m%d %H:%M:%S.%f}"

    def _message(self, record: LogRecord) -> str:
        message = record.getMessage()
        if getattr(record, "verbatim", False):
            return message
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        if not self._escape:
            return message + _origin(record)
        first, *rest = _parted(message)
        return "\n    ".join([_escaped(first) + _origin(record), *map(_printable, rest)])


def _letter(record: LogRecord) -> str:
    if record.levelno >= ERROR:
        return "E"
    return "W" if record.levelno >= WARNING else "I"


def _origin(record: LogRecord) -> str:
    """The model and the instance that a record comes from, for the end of its first line."""
    names = ((name, getattr(record, name, "")) for name in ("model", "instance"))
    return "".join(f" {name}={_plain(value)}" for name, value in names if value)


def _plain(name: str) -> str:
    """The name, quoted where it would not read as one word."""
    return name if re.fullmatch(r"[\w.:/@+-]+", name) else _escaped(name)


_TRACEBACK = re.compile(
    r"(?:^|\n+)(?=At:\n|[ |+]*(?:Exception Group )?Traceback \(most recent call last\):)"
)
"""Where a traceback begins, in the form of Triton's Python backend or of Python."""


def _parted(message: str) -> list[str]:
    """The message, and the lines of the traceback below it."""
    found = _TRACEBACK.search(message)
    if found is None:
        return [message]
    lines = message[found.end() :].rstrip("\n").split("\n")
    return [message[: found.start()], *lines] if found.start() else lines


def _escaped(message: str) -> str:
    """The message as a JSON string, so that text from clients cannot forge a line."""
    return json.dumps(_encodable(message), ensure_ascii=False).translate(_CONTROLS)


_CONTROLS = {
    code: f"\\u{code:04x}" for code in (*range(9), *range(10, 32), *range(127, 160), 0x2028, 0x2029)
}
"""Control characters and separators of lines, but tabs, as JSON escapes them."""


def _printable(line: str) -> str:
    return _encodable(line).translate(_CONTROLS)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


class _LevelFilter(logging.Filter):
    """Passes the enabled levels between two bounds."""

    def __init__(self, settings: LogSettings, low: int, high: int) -> None:
        super().__init__()
        self._settings = settings
        self._levels = range(low, high)

    def filter(self, record: LogRecord) -> bool:
        level = record.levelno
        return level in self._levels and self._on(level)

    def _on(self, level: int) -> bool:
        if level >= ERROR:
            return self._settings.error
        if level >= WARNING:
            return self._settings.warning
        return self._settings.info if level >= INFO else self._settings.verbose > 0


class _OwnHandler:
    """Marks the handlers of this module, which the next `configure` replaces."""


class _Console(_OwnHandler, logging.StreamHandler):  # type: ignore[type-arg]
    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lost = LogThrottle()

    def handleError(self, record: LogRecord) -> None:  # noqa: N802
        error = sys.exc_info()[1]
        if isinstance(error, BrokenPipeError):
            discard(self.stream)
        elif not isinstance(error, OSError):
            super().handleError(record)
        elif self._lost.add(time.monotonic()):
            text = f"{self.stream.name} is not writable: {error.strerror}"
            write_line(self.format(own_record(ERROR, text)), sys.stderr)


class _File(_OwnHandler, LogFile):
    pass


def _handlers(settings: LogSettings) -> list[_Console | _File]:
    highest = logging.CRITICAL + 1
    outputs: list[tuple[_Console | _File, range]]
    if settings.file:
        outputs = [(_File(settings.file), range(highest))]
    else:
        outputs = [
            (_Console(sys.stdout), range(WARNING)),
            (_Console(sys.stderr), range(WARNING, highest)),
        ]
    for handler, levels in outputs:
        handler.setFormatter(LineFormatter(settings))
        handler.addFilter(_LevelFilter(settings, levels.start, levels.stop))
    return [handler for handler, _ in outputs]
