"""`AuditLog`: a line of JSON for each event that somebody may have to answer for."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from logging import INFO, LogRecord

from penstock.core.access import AuditEvent
from penstock.core.errors import shortened
from penstock.telemetry.console import ConsoleHandler
from penstock.telemetry.line_writer import LineWriter
from penstock.telemetry.log_file import RotatedFile
from penstock.telemetry.log_lines import json_line


class AuditLog(LineWriter[AuditEvent]):
    """Writes events to a file, which is rotated, or to standard output for `-`."""

    def __init__(self, target: str, max_bytes: int = 0) -> None:
        """`max_bytes` are those of a file before another one is begun; 0 for no limit."""

        def opened() -> RotatedFile | ConsoleHandler:
            console = target == "-"
            handler = ConsoleHandler(sys.stdout) if console else RotatedFile(target, max_bytes)
            handler.setFormatter(_AuditFormatter())
            return handler

        super().__init__("audit log", opened, _record)


def _record(event: AuditEvent) -> LogRecord:
    record = LogRecord("penstock.audit", INFO, "", 0, "", None, None)
    record.audit = event
    return record


class _AuditFormatter(logging.Formatter):
    """Formats events; a record of the log about itself becomes a line with its message."""

    def format(self, record: LogRecord) -> str:
        event: AuditEvent | None = getattr(record, "audit", None)
        at = record.created if event is None else event.at
        time = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        if event is None:
            return json_line({"time": time, "message": record.getMessage()})
        texts = {
            "by": "server" if event.cause else "",
            "cause": event.cause,
            "caller": event.caller,
            "peer": event.peer,
            "what": event.what,
            "target": event.target,
            "result": event.result,
            "detail": event.detail,
        }
        return json_line(
            {"time": time, **{name: shortened(text) for name, text in texts.items() if text}}
        )
