"""Fields of log records: what a line is about, beside its message.

They are attributes of a record: `logger.error(..., extra=request_fields(request))`. The log writes
those that a record has, in every format, and model processes send them to the server's log.
"""

from __future__ import annotations

from logging import LogRecord

from penstock.core.errors import InferenceError, shortened
from penstock.core.request import InferenceRequest
from penstock.core.timeline import Timeline

FIELDS = ("model", "version", "instance", "request_id", "trace_id", "span_id")
"""Names of the fields, in the order in which they are written."""

_KEY = "penstock_request"
"""Attribute of an error with the fields of the request that it ended."""


def request_fields(request: InferenceRequest, version: str = "") -> dict[str, str]:
    """The fields of a line about a request; `version` is that of the model that serves it."""
    fields = {"model": request.model_name, "version": version or request.model_version}
    fields["request_id"] = shortened(request.id)
    if request.scope.timeline is not None:
        fields |= trace_fields(request.scope.timeline)
    return {name: value for name, value in fields.items() if value}


def trace_fields(timeline: Timeline) -> dict[str, str]:
    """The ids of a trace and its span in hexadecimal digits, as OpenTelemetry writes them."""
    return {
        "trace_id": timeline.trace.text_id,
        "span_id": f"{timeline.span_id:016x}",
    }


def name_request(error: BaseException, request: InferenceRequest) -> None:
    """Have the line about an unexpected error name the request that it ended.

    Errors for clients have no line.
    """
    if not isinstance(error, InferenceError):
        error.__dict__.setdefault(_KEY, request_fields(request))


def error_fields(error: BaseException) -> dict[str, str]:
    """The fields of a line about an error: those of its request, if it is known."""
    fields: dict[str, str] = error.__dict__.get(_KEY, {})
    return fields


def fields_of(record: LogRecord) -> dict[str, str]:
    """The fields that a record has."""
    values = ((name, getattr(record, name, "")) for name in FIELDS)
    return {name: str(value) for name, value in values if value}
