"""Lines of the log: formatters of its text form, which is Triton's, and of its JSON form."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from logging import ERROR, INFO, WARNING, LogRecord

from penstock.core.log.log_fields import fields_of
from penstock.settings import LogSettings


def formatter(settings: LogSettings) -> logging.Formatter:
    """The formatter that writes lines as the settings say."""
    return JsonFormatter() if settings.format == "json" else LineFormatter(settings)


class LineFormatter(logging.Formatter):
    """`I1121 16:30:00.123456 71 server.py:12] "message"`, or its ISO8601 form; times in UTC.

    A record about a model or a request ends in their names (`core.log_fields`). A traceback stands
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
        if getattr(record, "verbatim", False):
            return record.getMessage()
        message = _with_traceback(self, record)
        if not self._escape:
            return message + _origin(record)
        first, *rest = _parted(message)
        return "\n    ".join([_escaped(first) + _origin(record), *map(_printable, rest)])


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` in UTC (RFC 3339), `level`, `file`, `line` and so on.

    The fields of the record follow (`core.log_fields`), and `traceback` where there is one.
    """

    def format(self, record: LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        first, *rest = _parted(_with_traceback(self, record))
        line = {
            "time": f"{time:%Y-%m-%dT%H:%M:%S.%fZ}",
            "level": _level(record),
            "file": record.filename,
            "line": record.lineno,
            "pid": record.process,
            "logger": record.name,
            "message": first.strip("\n") if getattr(record, "verbatim", False) else first,
            **fields_of(record),
        }
        if rest:
            line["traceback"] = "\n".join(rest)
        return json_line(line)


def json_line(values: Mapping[str, object]) -> str:
    """The values as a JSON object on one line, whatever is in their texts."""
    safe = {n: _encodable(v) if isinstance(v, str) else v for n, v in values.items()}
    return json.dumps(safe, ensure_ascii=False).translate(_CONTROLS)


def _with_traceback(formatter: logging.Formatter, record: LogRecord) -> str:
    message = record.getMessage()
    if record.exc_info:
        message += "\n" + formatter.formatException(record.exc_info)
    return message


def _level(record: LogRecord) -> str:
    if record.levelno < INFO:
        return "VERBOSE"
    return _LEVELS[_letter(record)]


_LEVELS = {"E": "ERROR", "W": "WARNING", "I": "INFO"}


def _letter(record: LogRecord) -> str:
    if record.levelno >= ERROR:
        return "E"
    return "W" if record.levelno >= WARNING else "I"


def _origin(record: LogRecord) -> str:
    """The fields of a record, for the end of its first line."""
    return "".join(f" {name}={plain(value)}" for name, value in fields_of(record).items())


def plain(name: str) -> str:
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
    code: f"\\u{code:04x}"
    for code in (
        *(*range(9), *range(10, 32), *range(127, 160), 0x2028, 0x2029),
        *(0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
    )
}
"""Control characters and separators of lines, but tabs, as JSON escapes them; and the marks by
which what follows reads from right to left on a terminal.
"""


def _printable(line: str) -> str:
    return _encodable(line).translate(_CONTROLS)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
