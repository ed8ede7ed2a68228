"""Sends spans to a collector with OpenTelemetry's SDK; only the exporter process imports it."""

from __future__ import annotations

import logging
import marshal
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

from penstock.tracing.export import Report, frame
from penstock.tracing.spans import BatchSpans, Span, spans

_KINDS = tuple(SpanKind)


class CountingExporter(SpanExporter):
    """Counts what becomes of spans, and tells the server."""

    def __init__(self, exporter: SpanExporter, reports: socket.socket) -> None:
        self._exporter = exporter
        self._reports = reports
        self._under_way = 0
        self._fewer = threading.Condition()
        self.reason = ""

    def begin(self, most: int) -> None:
        """Count a span as under way, as soon as there are fewer than `most`."""
        with self._fewer:
            self._fewer.wait_for(lambda: self._under_way < most)
            self._under_way += 1

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch; called by the processor, on its thread."""
        self.reason = ""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # such as an attribute that cannot be encoded
            result, self.reason = SpanExportResult.FAILURE, repr(error)
        done = result is SpanExportResult.SUCCESS
        count = len(spans)
        self._tell(Report(count, 0) if done else Report(0, count, self.reason or "refused"))
        with self._fewer:
            self._under_way -= count
            self._fewer.notify_all()
        return result

    def shutdown(self) -> None:
        """Shut the exporter down."""
        self._exporter.shutdown()

    def _tell(self, report: Report) -> None:
        with suppress(OSError):  # the server is gone, and this process ends soon
            self._reports.sendall(frame(marshal.dumps(tuple(report))))


class _LastError(logging.Handler):
    """Keeps what the SDK logs about an export that fails, for the report of it."""

    def __init__(self, exporter: CountingExporter) -> None:
        super().__init__(logging.WARNING)
        self._exporter = exporter

    def emit(self, record: logging.LogRecord) -> None:
        self._exporter.reason = record.getMessage().splitlines()[0][:500]


def readable(span: Span, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    """The span as the SDK's exporters take it."""
    state = TraceState.from_header([span.state]) if span.state else None
    sampled = TraceFlags(TraceFlags.SAMPLED)
    context = SpanContext(span.trace_id, span.span_id, False, sampled, state)
    parent = None
    if span.parent_id:
        remote = span.parent_is_remote
        parent = SpanContext(span.trace_id, span.parent_id, remote, sampled, state)
    status = Status()
    if span.error is not None:
        status = Status(StatusCode.ERROR, span.error.message)
    return ReadableSpan(
        name=span.name,
        context=context,
        parent=parent,
        resource=resource,
        attributes=dict(span.attributes),
        events=[Event(name, dict(facts), at) for name, at, facts in span.events],
        links=[Link(SpanContext(trace, own, True, sampled)) for trace, own in span.links],
        kind=_KINDS[span.kind],
        status=status,
        start_time=span.begin,
        end_time=span.end,
        instrumentation_scope=scope,
    )


def make_resource(version: str, server_id: str, given: dict[str, str]) -> Resource:
    """What the spans are of: as detected, as the environment says, as the settings say (T-14)."""
    detected: dict[str, str | int] = {
        "service.name": "triton-inference-server",
        "service.version": version,
        "service.instance.id": server_id,
        "host.name": platform.node(),
        "host.arch": platform.machine(),
        "process.pid": os.getppid(),  # the server's; its interpreter is the one of this process
        "process.executable.path": sys.executable,
        "process.runtime.name": sys.implementation.name,
        "process.runtime.version": platform.python_version(),
    }
    environment = OTELResourceDetector().detect().attributes
    return Resource.create({**detected, **environment, **given})


def make_exporter(protocol: str, url: str) -> SpanExporter:
    """The exporter of a protocol; what is not given, the environment says or it has defaults."""
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc

        return Grpc(endpoint=url or None)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http

    return Http(endpoint=url or None)


class SpanPipeline:
    """From packed traces to the collector; `settings` are those of `ExportSettings`."""

    def __init__(self, link: socket.socket, settings: dict[str, Any]) -> None:
        self._link = link
        self._exporter = CountingExporter(
            make_exporter(settings["protocol"], settings["url"]), link
        )
        logging.getLogger().addHandler(_LastError(self._exporter))
        self._most = settings["queue_size"]
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=self._most,
            schedule_delay_millis=settings["schedule_delay"],
            max_export_batch_size=min(settings["batch_size"], self._most),
        )
        self._resource = make_resource(settings["version"], settings["id"], settings["resource"])
        self._scope = InstrumentationScope("penstock", settings["version"])
        self._batches = BatchSpans()

    def close(self) -> None:
        """Export what is left."""
        self._export(self._batches.rest())
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def look(self) -> None:
        """Export batches that wait for requests in vain."""
        self._export(self._batches.due(time.monotonic()))

    def take(self, payload: bytes) -> None:
        """Export the spans of a trace."""
        packed = marshal.loads(payload)
        self._export(spans(packed))
        self._export(self._batches.add(packed, time.monotonic()))

    def _export(self, found: Iterable[Span]) -> None:
        for span in found:
            # Here it waits while the collector is slow: the server's buffer then fills, and it
            # drops whole traces, which are better to miss than parts of each.
            self._exporter.begin(self._most)
            self._processor.on_end(readable(span, self._resource, self._scope))
