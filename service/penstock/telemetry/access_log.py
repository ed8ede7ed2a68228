"""`AccessLog`: a line for each finished HTTP request and gRPC call, written by a thread."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from logging import INFO, WARNING, LogRecord
from queue import SimpleQueue
from threading import Thread

from penstock.core.access import Access
from penstock.core.errors import shortened
from penstock.telemetry.console import ConsoleHandler, own_record
from penstock.telemetry.log_file import LogFile
from penstock.telemetry.log_lines import json_line, plain

MOST_WAITING = 1 << 14
"""Lines that may wait for the disk; further ones are lost, and counted in the log afterwards."""

_PAUSE = 0.02
"""Seconds between two looks of the writing thread: lines of a burst are written together."""

_CLOSE_SECONDS = 5.0

logger = logging.getLogger(__name__)


class _Order(Enum):
    """What the writing thread is to do beside writing lines."""

    REOPEN = "reopen"
    STOP = "stop"


class AccessLog:
    """Writes lines to a file, or to standard output for `-`; as JSON where `is_json` says so.

    `add` never waits. Raises `OSError` if the file cannot be opened.
    """

    def __init__(self, target: str, is_json: Callable[[], bool]) -> None:
        self._target = target
        self._is_json = is_json
        self._handler = self._open()  # from here on the thread's, as is `_told`
        self._lines: SimpleQueue[Access | _Order] = SimpleQueue()
        self._lost = self._told = 0
        self._thread = Thread(target=self._write, name="access log", daemon=True)
        self._thread.start()

    def add(self, access: Access) -> None:
        """Have a line written soon; it is lost where too many wait."""
        if self._lines.qsize() < MOST_WAITING:
            self._lines.put(access)
        else:
            self._lost += 1

    def reopen(self) -> None:
        """Open the file anew, as after it was renamed; on failure the old one stays in use."""
        self._lines.put(_Order.REOPEN)

    def close(self) -> None:
        """Write what waits, and stop; returns after a few seconds at most."""
        self._lines.put(_Order.STOP)
        self._thread.join(_CLOSE_SECONDS)

    def _open(self) -> logging.Handler:
        console = self._target == "-"
        handler = ConsoleHandler(sys.stdout) if console else LogFile(self._target)
        handler.setFormatter(_AccessFormatter(self._is_json))
        return handler

    def _write(self) -> None:
        while (line := self._lines.get()) is not _Order.STOP:
            if isinstance(line, Access):
                self._handler.handle(_record(line))
            else:
                self._reopen()
            if (lost := self._lost) != self._told:
                text = f"lines missing here: {lost - self._told}"
                self._told = lost
                self._handler.handle(own_record(WARNING, text))
            if self._lines.empty():
                time.sleep(_PAUSE)
        self._handler.close()

    def _reopen(self) -> None:
        try:
            handler = self._open()
        except OSError as error:
            logger.error("the access log cannot be opened anew: %s", error)
            return
        self._handler.close()
        self._handler = handler


def _record(access: Access) -> LogRecord:
    record = LogRecord("penstock.access", INFO, "", 0, "", None, None)
    record.access = access
    return record


class _AccessFormatter(logging.Formatter):
    """Formats accesses; a record of the log about itself becomes a line with its message."""

    def __init__(self, is_json: Callable[[], bool]) -> None:
        super().__init__()
        self._is_json = is_json

    def format(self, record: LogRecord) -> str:
        access: Access | None = getattr(record, "access", None)
        at = record.created if access is None else access.at
        time = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        if access is None:
            message = record.getMessage()
            return json_line({"time": time, "message": message}) if self._is_json() else message
        return _as_json(time, access) if self._is_json() else _as_text(time, access)


def _as_json(time: str, access: Access) -> str:
    named = {
        "path": shortened(access.path),
        "model": shortened(access.model),
        "request_id": shortened(access.request_id),
        "trace_id": access.trace_id,
        "caller": shortened(access.caller),
    }
    return json_line(
        {
            "time": time,
            "peer": access.peer,
            "protocol": access.protocol,
            "method": access.method,
            "status": access.status,
            "received": access.received,
            "sent": access.sent,
            "duration_ms": round(access.seconds * 1000, 3),
            **{name: value for name, value in named.items() if value},
        }
    )


def _as_text(time: str, access: Access) -> str:
    named = {
        "model": access.model,
        "request_id": access.request_id,
        "trace_id": access.trace_id,
        "caller": access.caller,
    }
    words = [time, access.peer or "-", access.protocol, access.method, access.path]
    fields = {
        "status": access.status,
        "received": str(access.received),
        "sent": str(access.sent),
        "ms": f"{access.seconds * 1000:.3f}",
        **{name: value for name, value in named.items() if value},
    }
    return " ".join(
        [plain(shortened(word)) for word in words if word]
        + [f"{name}={plain(shortened(value))}" for name, value in fields.items()]
    )
