"""What the exporter process does, on a thread of the tests."""

from __future__ import annotations

import marshal
import socket
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from harness.outcomes import raises_nothing
from penstock.core.timeline import Batch, Trace
from penstock.tracing.export import ExportSettings, Frames, Report, frame
from penstock.tracing.exporter import export_all
from penstock.tracing.otlp import CountingExporter, make_exporter, make_resource
from penstock.tracing.packed_trace import pack
from tracing.export.collector import HttpCollector
from tracing.export.traces import BEGIN, plain_trace


def _exported(url: str, *traces: Trace, **given: Any) -> list[Report]:
    """Hand traces to the exporter as the server does; what it reports."""
    ours, theirs = socket.socketpair()
    settings = asdict(ExportSettings("1", "me", url=url, **{"schedule_delay": 50, **given}))
    with ours, theirs:
        exporter = threading.Thread(target=export_all, args=(theirs,))
        exporter.start()
        ours.sendall(frame(marshal.dumps(settings)))
        for trace in traces:
            ours.sendall(frame(marshal.dumps(pack(trace))))
        ours.shutdown(socket.SHUT_WR)
        exporter.join(60)
        theirs.close()
        data = b"".join(iter(lambda: ours.recv(1 << 16), b""))
    return [Report(*marshal.loads(payload)) for payload in Frames().add(data)]


def _first_of_two() -> Trace:
    """The trace of a request whose batch has another one that is traced."""
    batch = Batch(BEGIN, 2, 2, "plain_0")
    first, _ = (plain_trace(batch=batch) for _ in range(2))
    return first


def test_spans_and_batches_are_exported_and_reported() -> None:
    batch = Batch(BEGIN, 2, 2, "plain_0")
    with HttpCollector() as collector:
        reports = _exported(collector.url, *(plain_trace(batch=batch) for _ in range(2)))
    assert sum(report.exported for report in reports) == 7
    (span,) = collector.named("batch plain")
    assert len(span.links) == 2


def test_batch_of_which_one_is_traced_is_exported_at_the_end() -> None:
    with HttpCollector() as collector:
        _exported(collector.url, _first_of_two())
    assert len(collector.named("batch plain")) == 1


def test_batches_that_wait_in_vain_are_exported_before_the_end() -> None:
    """More of them than may wait: the first one comes before all traces are there."""
    with HttpCollector() as collector:
        _exported(collector.url, *(_first_of_two() for _ in range(1027)))
    assert [span.name for span in collector.spans].index("batch plain") < 3 * 1027


@pytest.mark.parametrize(("queue", "batch"), [(512, 2), (2, 512)])
def test_no_export_is_larger_than_the_batch_size_or_the_queue(queue: int, batch: int) -> None:
    with HttpCollector() as collector:
        reports = _exported(
            collector.url, plain_trace(), queue_size=queue, batch_size=batch, schedule_delay=60_000
        )
    assert sorted(report.exported for report in reports) == [1, 2]


def test_server_that_leaves_before_its_settings_is_no_error() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs, raises_nothing():
        export_all(theirs)


class _Raising(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise ValueError("not a value")


def test_error_of_an_exporter_is_reported() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        counting = CountingExporter(_Raising(), theirs)
        counting.begin(1)
        counting.export([ReadableSpan("one")])
        counting.begin(1)  # there is room again
        counting.shutdown()
        (payload,) = Frames().add(ours.recv(1000))
    assert Report(*marshal.loads(payload)) == Report(0, 1, "ValueError('not a value')")


def test_exporters_of_both_protocols() -> None:
    for protocol in ("grpc", "http/protobuf"):
        exporter = make_exporter(protocol, "http://127.0.0.1:1/v1/traces")
        assert protocol.partition("/")[0] in type(exporter).__module__
        exporter.shutdown()


def test_settings_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "environment")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "a=1,b=1")
    found = make_resource("1", "me", {"b": "2"}).attributes
    assert (found["service.name"], found["a"], found["b"]) == ("environment", "1", "2")
