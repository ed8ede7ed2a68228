"""The log: handlers that write lines as `tritonserver` does, and its settings.

Information goes to standard output, warnings and errors to standard error; if a log file is set,
everything goes there instead (L-05). Below INFO are the verbose levels: `DEBUG` is level 1, one
lower is level 2.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from logging import DEBUG, ERROR, INFO, WARNING, LogRecord
from typing import Any

from penstock.core.log.log_throttle import repeat_note
from penstock.core.log.verbosity import VERBOSITY
from penstock.settings import LogSettings
from penstock.telemetry.console import ConsoleHandler
from penstock.telemetry.log_file import LogFile
from penstock.telemetry.log_lines import formatter

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
    VERBOSITY.change(max(0, settings.verbose))
    for name in _OWN:
        logging.getLogger(name).setLevel(max(1, DEBUG + 1 - settings.verbose))


class ServerLog:
    """The log's settings, which clients may read and change (contract L-06)."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings

    def current(self) -> Mapping[str, bool | int | str]:
        """Every setting by its name in the protocol."""
        return {name: getattr(self._settings, field) for name, field in _NAMES.items()}

    @property
    def is_json(self) -> bool:
        """Whether lines are JSON objects."""
        return self._settings.format == "json"

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


class _LibraryRepeats(logging.Filter):
    """Throttles warnings and errors of libraries in the server's process, by their places.

    Our own lines are throttled where they are made; what a model process logs is not.
    """

    def filter(self, record: LogRecord) -> bool:
        if record.levelno < WARNING or hasattr(record, "instance"):
            return True
        if record.name.partition(".")[0] in _OWN:
            return True
        note = repeat_note(record.name, record.pathname, record.lineno)
        if note:
            record.msg, record.args = "%s%s", (record.getMessage(), note)
        return note is not None


class _OwnHandler:
    """Marks the handlers of this module, which the next `configure` replaces."""


class _Console(_OwnHandler, ConsoleHandler):
    pass


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
        handler.setFormatter(formatter(settings))
        handler.addFilter(_LevelFilter(settings, levels.start, levels.stop))
        handler.addFilter(_LibraryRepeats())
    return [handler for handler, _ in outputs]
