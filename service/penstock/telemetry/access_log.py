"""`AccessLog`: a line for each finished HTTP request and gRPC call, written by a thread."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from logging import INFO, LogRecord

from penstock.core.access import Access
from penstock.core.errors import shortened
from penstock.telemetry.console import ConsoleHandler
from penstock.telemetry.line_writer import LineWriter
from penstock.telemetry.log_file import LogFile
from penstock.telemetry.log_lines import json_line, plain


class AccessLog(LineWriter[Access]):
    """Writes lines to a file, or to standard output for `-`; as JSON where `is_json` says so."""

    def __init__(self, target: str, is_json: Callable[[], bool]) -> None:
        def opened() -> LogFile | ConsoleHandler:
            handler = ConsoleHandler(sys.stdout) if target == "-" else LogFile(target)
            handler.setFormatter(_AccessFormatter(is_json))
            return handler

        super().__init__("access log", opened, _record)


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
