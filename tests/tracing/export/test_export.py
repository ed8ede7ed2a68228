"""`TraceExport`: traces reach a collector, and nothing waits for one that does not take them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from harness.no_descriptors import no_descriptors
from harness.processes import read_of
from penstock.core.errors import DeadlineExceededError
from penstock.tracing.export import ExportCounts, ExportSettings, TraceExport
from tracing.export.collector import GrpcCollector, HttpCollector, attributes, port_of_nobody
from tracing.export.traces import plain_trace

pytestmark = pytest.mark.slow


def _export(url: str = "", **settings: Any) -> TraceExport:
    export = TraceExport(
        ExportSettings("1.2.3", "server-7", url=url, **{"schedule_delay": 50, **settings})
    )
    export.start()
    return export


async def _until(condition: Callable[[], object], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


class Exported(NamedTuple):
    collector: HttpCollector
    counts: ExportCounts


@pytest.fixture(scope="module")
def exported() -> Iterator[Exported]:
    """What a collector got: a trace, one that cannot be sent, one of a failure after signals."""
    with HttpCollector() as collector:
        yield Exported(collector, asyncio.run(_export_some(collector)))


async def _export_some(collector: HttpCollector) -> ExportCounts:
    export = _export(collector.url, resource={"service.name": "mine", "zone": "a"})
    odd = plain_trace()
    odd.root.facts["odd"] = object()  # type: ignore[assignment]
    export.submit(odd)
    export.submit(plain_trace())
    await _until(lambda: export.counts.exported == 3)
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(export.pid or 0, number)
    export.submit(plain_trace(error=DeadlineExceededError("Deadline Exceeded")))
    await export.close(20)
    assert export.pid is None
    return export.counts


@pytest.mark.contract("T-15")
def test_traces_reach_a_collector(exported: Exported) -> None:
    names = [span.name for span in exported.collector.spans[:4]]
    assert names == ["InferRequest", "plain", "compute", "InferRequest"]
    assert exported.collector.headers[0][":path"] == "/v1/traces"
    assert exported.counts.exported == 6


def test_resource_is_the_server_with_what_the_settings_say(exported: Exported) -> None:
    found = exported.collector.resources[0]
    assert found["service.name"] == "mine"
    assert found["zone"] == "a"
    assert found["service.version"] == "1.2.3"
    assert found["service.instance.id"] == "server-7"
    assert found["process.pid"] == os.getpid()
    assert found["host.name"]
    assert found["telemetry.sdk.name"] == "opentelemetry"


def test_trace_that_is_not_plain_is_lost_alone(exported: Exported) -> None:
    assert exported.counts.dropped == {"not_plain": 3}


def test_signals_to_all_processes_leave_the_exporter_to_the_server(exported: Exported) -> None:
    assert len(exported.collector.named("InferRequest")) == 2


def test_error_is_the_status(exported: Exported) -> None:
    first, second = exported.collector.named("InferRequest")
    assert first.status.code == 0
    assert second.status.code == 2
    assert second.status.message == "Deadline Exceeded"
    assert attributes(second.attributes)["error.type"] == "DeadlineExceededError"


@pytest.mark.contract("T-14")
async def test_environment_of_opentelemetry_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    with HttpCollector() as collector:
        for name, value in {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url.removesuffix("/v1/traces"),
            "OTEL_EXPORTER_OTLP_HEADERS": "x-key=secret",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_RESOURCE_ATTRIBUTES": "zone=b,service.name=other",
        }.items():
            monkeypatch.setenv(name, value)
        export = _export()
        export.submit(plain_trace())
        await export.close(20)
    assert len(collector.spans) == 3
    assert collector.headers[0]["x-key"] == "secret"
    assert collector.headers[0]["content-encoding"] == "gzip"
    assert collector.resources[0]["zone"] == "b"
    assert collector.resources[0]["service.name"] == "other"


async def test_collector_that_is_down_loses_spans_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    export = _export(f"http://127.0.0.1:{port_of_nobody()}/v1/traces")
    export.submit(plain_trace())
    await _until(lambda: export.counts.dropped["refused"] == 3)
    export.submit(plain_trace())
    await _until(lambda: export.counts.dropped["refused"] == 6)
    await export.close(5)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert lines[0].startswith("the collector does not take traces: ")


async def test_collector_that_refuses_loses_spans_and_gets_those_after(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with GrpcCollector() as collector:
        collector.status = 403
        export = _export(collector.url, protocol="grpc")
        export.submit(plain_trace())
        await _until(lambda: export.counts.dropped["refused"] == 3)
        assert "PERMISSION_DENIED" in caplog.text
        collector.status = 200
        export.submit(plain_trace())
        await _until(lambda: export.counts.exported == 3)
        await export.close(5)


async def test_hanging_collector_fills_the_buffer_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with HttpCollector() as collector:
        collector.open.clear()
        export = _export(collector.url, queue_size=20, batch_size=20)
        for _ in range(3000):
            export.submit(plain_trace())
            await asyncio.sleep(0)
        assert export.counts.dropped["buffer_full"] > 2000
        assert len([r for r in caplog.records if "too slow" in r.getMessage()]) == 1
        await _until(lambda: collector.requests)
        await export.close(0.5)  # while the collector answers nobody
    assert export.counts.dropped["exit"] > 0
    assert export.pid is None


async def test_exporter_that_cannot_start_says_why(caplog: pytest.LogCaptureFixture) -> None:
    export = _export("http://127.0.0.1:1", queue_size=0)
    await _until(lambda: caplog.records)
    await export.close(5)
    assert "max_queue_size must be a positive integer" in caplog.text


async def test_exporter_that_has_nothing_to_flush_is_not_waited_for() -> None:
    export = _export(f"http://127.0.0.1:{port_of_nobody()}/v1/traces")
    await export.close(3600)
    assert export.pid is None


async def test_killed_exporter_is_followed_by_another(caplog: pytest.LogCaptureFixture) -> None:
    export = _export(f"http://127.0.0.1:{port_of_nobody()}/v1/traces")
    first = export.pid
    os.kill(first or 0, signal.SIGKILL)
    await _until(lambda: export.pid not in (None, first))
    await export.close(5)
    assert "the exporter process has ended: signal SIGKILL" in caplog.text


async def test_exporter_for_which_there_is_no_descriptor_is_started_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    export = _export(f"http://127.0.0.1:{port_of_nobody()}/v1/traces")
    first = export.pid
    with no_descriptors():
        os.kill(first or 0, signal.SIGKILL)
        await _until(lambda: export.pid is None)
        export.submit(plain_trace())
        await _until(lambda: "cannot be started" in caplog.text)
    await _until(lambda: export.pid not in (None, first))
    await export.close(5)


async def test_the_exporter_has_no_secrets_in_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ADMIN", "the secret of a restriction")
    export = _export(f"http://127.0.0.1:{port_of_nobody()}/v1/traces")
    assert b"the secret" not in read_of(export.pid or 0, "environ")
    await export.close(5)
