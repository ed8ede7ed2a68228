"""Which requests become spans in the OpenTelemetry mode, and its settings while it serves."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

import grpc
import pytest
from tritonclient.grpc import service_pb2

from harness.serving import Served, serving
from tracing.export.collector import HttpCollector
from tracing.served.calls import request, stub
from tracing.served.models import write_models


class House(NamedTuple):
    server: Served
    collector: HttpCollector


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server that traces at rate 0 from its start on: as long as a client cannot change it."""
    folder = tmp_path_factory.mktemp("sampled")
    with HttpCollector() as collector:
        options = (
            "mode=opentelemetry",
            "level=TIMESTAMPS",
            "rate=0",
            f"opentelemetry,url={collector.url}",
            "opentelemetry,bsp_schedule_delay=50",
            "opentelemetry,resource=zone=a",
            "opentelemetry,resource=rack=b",
            "triton,file=ignored.json",
        )
        arguments = ["--model-control-mode=explicit", "--load-model=plain"]
        arguments += ["--allow-trace-control=true", "--allow-trace-tensors=true"]
        arguments += [f"--trace-config={option}" for option in options]
        with serving(write_models(folder / "models"), folder / "log", *arguments) as server:
            yield House(server, collector)


def _ask(house: House, *parents: str) -> None:
    """Requests one after the other; without a context where the parent is empty."""
    channel, service = stub(house.server.grpc)
    with channel:
        for parent in parents:
            metadata = [("traceparent", parent)] if parent else []
            service.ModelInfer(request("plain", 1), metadata=metadata, timeout=60)


def _parent(trace_id: int, flags: str) -> str:
    return f"00-{trace_id:032x}-00f067aa0ba902b7-{flags}"


def _traced(house: House, last: int) -> set[int]:
    """The traces that came, up to one that is sure to come."""
    collector = house.collector
    collector.wait_for(lambda: [s for s in collector.trace(last) if s.name == "InferRequest"])
    traces = {int.from_bytes(span.trace_id, "big") for span in collector.spans}
    collector.spans.clear()
    return traces


@pytest.mark.contract("T-16", "T-06")
def test_at_rate_0_requests_with_a_context_are_traced_whatever_their_flag(house: House) -> None:
    invalid = f"00-{0:032x}-00f067aa0ba902b7-01"
    _ask(house, "", _parent(0xA1, "00"), "", invalid, "garbage", _parent(0xA2, "01"))
    assert _traced(house, 0xA2) == {0xA1, 0xA2}


def _change(house: House, **settings: list[str]) -> dict[str, list[str]]:
    message = service_pb2.TraceSettingRequest()
    for name, values in settings.items():
        message.settings[name].value.extend(values)
    channel, service = stub(house.server.grpc)
    with channel:
        answer = service.TraceSetting(message, timeout=60).settings
    return {name: list(value.value) for name, value in answer.items()}


@pytest.mark.contract("T-06", "T-16", "T-19", "T-20")
@pytest.mark.last
def test_requests_with_a_context_count_and_are_traced_beyond_the_count(house: House) -> None:
    """As in the real server, where the rate cannot be 0 again, and the mode stays."""
    given = {"trace_rate": ["2"], "trace_count": ["1"], "trace_mode": ["triton"]}
    settings = _change(house, trace_level=["TIMESTAMPS"], **given)
    assert (settings["trace_mode"], settings["trace_count"]) == (["opentelemetry"], ["1"])
    _ask(house, _parent(0xB1, "01"), "", "", "", _parent(0xB2, "01"))
    traces = _traced(house, 0xB2)
    assert len(traces - {0xB1, 0xB2}) == 1
    assert _change(house)["trace_count"] == ["0"]
    with pytest.raises(grpc.RpcError) as refused:
        _change(house, trace_rate=["0"])
    text = "Attempting to set invalid trace setting :sample rate must be non-zero"
    assert refused.value.details() == text


@pytest.mark.contract("T-03", "T-05", "H-11", "X-13")
@pytest.mark.last
def test_settings_are_those_of_the_mode(house: House) -> None:
    """Tensors are told to be left out, once for the change."""
    _change(house, trace_level=["TENSORS"], trace_rate=["1"], trace_count=["-1"])
    with urllib.request.urlopen(f"http://{house.server.http}/v2/trace/setting") as reply:
        settings: dict[str, Any] = json.load(reply)
    assert settings == {
        "trace_level": ["TENSORS"],
        "trace_rate": "1",
        "trace_count": "-1",
        "trace_mode": "opentelemetry",
        "url": house.collector.url,
        "resource": ["zone=a", "rack=b"],
        "bsp_max_export_batch_size": "512",
        "bsp_schedule_delay": "50",
        "bsp_max_queue_size": "2048",
    }
    _ask(house, "", _parent(0xC1, "01"))
    assert len(_traced(house, 0xC1)) == 2
    text = "Tensor level tracing is not supported by the mode: opentelemetry"
    assert house.server.log.read_text().count(text) == 1
