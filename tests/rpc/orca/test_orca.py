"""Load reports over gRPC: with answers, and out of band."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc
import pytest

from penstock.core.errors import InternalError
from penstock.models.serving.answers import Gauge
from penstock.protocol import orca_load_report_pb2, orca_pb2
from penstock.rpc.orca import SHORTEST, OrcaServicer, add_report
from penstock.server.load_meter import LoadMeter
from penstock.settings import GrpcSettings
from rpc.manual import Call, ManualServer, ask, number, turns
from rpc.serving import Client, connected

_PATH = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics"
_GAUGES = [
    Gauge("penstock_llm_kv_cache_usage", "llm", "1", 0.5),
    Gauge("penstock_llm_waiting_requests", "llm", "1", 2),
]


class _Server(ManualServer):
    """A facade that answers each request at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.load_meter = LoadMeter(tuple, lambda: _GAUGES, self._clock)

    def _clock(self) -> float:
        self.now += 1.0
        return self.now

    def infer(self, request: Any) -> Any:
        stream = super().infer(request)
        if request.id == "fails":
            stream.fail(InternalError("it broke"))
        else:
            stream.send(number(1, final=True))
        return stream


@pytest.fixture
async def client(local: GrpcSettings) -> AsyncIterator[Client]:
    async with connected(_Server(), local) as client:
        yield client


def _metadata(form: str) -> list[tuple[str, str]]:
    return [("endpoint-load-metrics-format", form)]


async def _trailers(client: Client, model: str, form: str, id: str = "1") -> dict[str, str | bytes]:
    call = client.method("ModelInfer")(ask(model, id), metadata=_metadata(form))
    with suppress(grpc.aio.AioRpcError):
        await call
    fields: list[tuple[str, str | bytes]] = list(await call.trailing_metadata())
    return dict(fields)


@pytest.mark.contract("SD-12")
async def test_an_answer_has_the_report_that_was_asked_for(client: Client) -> None:
    trailers = await _trailers(client, "once", "json")
    text = str(trailers["endpoint-load-metrics"])
    assert json.loads(text.removeprefix("JSON "))["named_metrics"] == {
        "kv_cache_utilization": 0.5,
        "queue_depth": 0,
        "llm_waiting_requests": 2,
    }


async def test_a_failure_has_one_too(client: Client) -> None:
    """It was executed, and so cost as much."""
    trailers = await _trailers(client, "once", "json", id="fails")
    assert "endpoint-load-metrics" in trailers


@pytest.mark.parametrize("model", ["strict", "unknown"])
async def test_a_refusal_has_none(client: Client, model: str) -> None:
    assert "endpoint-load-metrics" not in await _trailers(client, model, "json")


def test_balancers_get_the_message_that_they_know() -> None:
    """Under a key that the client of grpcio keeps for its balancers, and does not show."""
    call, sent = Call(), dict[str, Any]()
    call.metadata = dict(_metadata("bin"))
    call.add_trailing_metadata = sent.update  # type: ignore[assignment,method-assign]
    add_report(call, _Server().load_meter)
    report = orca_load_report_pb2.OrcaLoadReport.FromString(sent.pop("endpoint-load-metrics-bin"))
    assert dict(report.named_metrics)["kv_cache_utilization"] == 0.5
    assert not sent


@pytest.mark.parametrize("form", ["", "nonsense"])
async def test_nobody_else_gets_a_report(client: Client, form: str) -> None:
    trailers = await _trailers(client, "once", form)
    assert not [key for key in trailers if key.startswith("endpoint-load-metrics")]


async def test_a_stream_has_one_at_its_end(client: Client) -> None:
    call = client.stream(iter([ask("many", "1")]), metadata=_metadata("text"))
    assert len([response async for response in call]) == 1
    (text,) = [v for k, v in await call.trailing_metadata() if k == "endpoint-load-metrics"]
    assert text.startswith("TEXT cpu_utilization=")


async def test_reports_out_of_band_begin_at_once(client: Client) -> None:
    call = client.channel.unary_stream(
        _PATH,
        request_serializer=orca_pb2.OrcaLoadReportRequest.SerializeToString,
        response_deserializer=orca_load_report_pb2.OrcaLoadReport.FromString,
    )(orca_pb2.OrcaLoadReportRequest())
    report: Any = await call.read()
    assert dict(report.named_metrics)["llm_waiting_requests"] == 2
    call.cancel()


class _Listener(Call):
    """The client's side of a stream of reports."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[Any] = []
        self.enough = asyncio.Event()

    async def write(self, message: Any) -> None:
        self.reports.append(message)
        if len(self.reports) == 3:
            self.enough.set()


async def test_reports_go_on_until_the_server_stops() -> None:
    server, listener = _Server(), _Listener()
    orca = OrcaServicer(server, shortest=0.001)
    request = orca_pb2.OrcaLoadReportRequest()
    request.report_interval.FromNanoseconds(1)
    streaming = asyncio.ensure_future(orca.StreamCoreMetrics(request, listener))
    await asyncio.wait_for(listener.enough.wait(), 60)
    server.stopped.set()
    with pytest.raises(Exception, match="stop"):
        await asyncio.wait_for(streaming, 60)


@pytest.mark.parametrize("seconds", [0, 1e-9, 100])
async def test_intervals_are_not_shorter_than_what_rates_take(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def wait(_: Any, **options: float) -> None:
        waited.append(options["timeout"])
        await asyncio.Event().wait()

    monkeypatch.setattr("penstock.rpc.orca.asyncio.wait", wait)
    request = orca_pb2.OrcaLoadReportRequest()
    request.report_interval.FromNanoseconds(int(seconds * 1e9))
    streaming = asyncio.ensure_future(
        OrcaServicer(_Server()).StreamCoreMetrics(request, _Listener())
    )
    await turns()
    streaming.cancel()
    assert waited == [max(seconds, SHORTEST)]
