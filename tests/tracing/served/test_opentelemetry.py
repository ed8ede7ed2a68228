"""The OpenTelemetry mode: requests of clients become spans in a collector."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from harness.processes import command_of
from harness.serving import Served, alive, serving, wait_until
from tracing.export.collector import GrpcCollector, HttpCollector, attributes
from tracing.served.calls import request, stub
from tracing.served.models import write_models

_IDS = count(1)
_SPAN = 0xAA


class Traced(NamedTuple):
    server: Served
    collector: HttpCollector
    models: Path


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    """A server of all models that traces every request, and the collector that it exports to."""
    folder = tmp_path_factory.mktemp("exported")
    with HttpCollector() as collector:
        arguments = [*_tracing(collector.url), "--cache-config=local,size=1048576"]
        with serving(write_models(folder / "models"), folder / "log", *arguments) as served:
            yield Traced(served, collector, folder / "models")


def _tracing(url: str, *more: str) -> list[str]:
    options = ["mode=opentelemetry", "level=TIMESTAMPS", "rate=1", "opentelemetry,url=" + url]
    options += ["opentelemetry,bsp_schedule_delay=50", *more]
    return [f"--trace-config={option}" for option in options]


def _context() -> tuple[int, list[tuple[str, str]]]:
    """A new trace id, and the metadata of a caller whose span it has."""
    trace_id = (next(_IDS) << 64) | os.getpid()
    parent = f"00-{trace_id:032x}-{_SPAN:016x}-01"
    return trace_id, [("traceparent", parent), ("tracestate", "vendor=1"), ("baggage", "a=b")]


def _call(traced: Traced, message: Any) -> list[Any]:
    """The spans of one unary call, which may fail."""
    trace_id, metadata = _context()
    channel, service = stub(traced.server.grpc)
    with channel, suppress(grpc.RpcError):
        service.ModelInfer(message, metadata=metadata, timeout=60)
    return _spans(traced, trace_id)


def _post(traced: Traced, path: str, body: Any) -> list[Any]:
    """The spans of one HTTP request, which may fail."""
    trace_id, metadata = _context()
    head = {**dict(metadata), "content-type": "application/json"}
    address = f"http://{traced.server.http}/v2/models/{path}"
    asked = urllib.request.Request(address, json.dumps(body).encode(), head)
    with suppress(urllib.error.HTTPError), urllib.request.urlopen(asked, timeout=60) as reply:
        reply.read()
    return _spans(traced, trace_id)


def _stream(traced: Traced, message: Any) -> list[Any]:
    """The spans of one request in a stream."""
    trace_id, metadata = _context()
    channel, service = stub(traced.server.grpc)
    with channel:
        list(service.ModelStreamInfer(iter([message]), metadata=metadata, timeout=60))
    return _spans(traced, trace_id)


def _body(*values: float) -> dict[str, Any]:
    tensor = {"name": "IN", "datatype": "FP32", "shape": [len(values)], "data": values}
    return {"id": "mine", "inputs": [tensor]}


def _spans(traced: Traced, trace_id: int) -> list[Any]:
    """The spans of a trace, once they are there: those of a trace come together."""
    wait_until(lambda: any(s.name == "InferRequest" for s in traced.collector.trace(trace_id)))
    return traced.collector.trace(trace_id)


def _tree(spans: list[Any], parent: Any = None) -> dict[str, Any]:
    """Names of spans, each with those below it."""
    above = _SPAN.to_bytes(8, "big") if parent is None else parent.span_id
    below = [span for span in spans if span.parent_span_id == above]
    return {span.name: _tree(spans, span) for span in below}


def _by_name(spans: list[Any], name: str) -> Any:
    return next(span for span in spans if span.name == name)


_EXECUTED: dict[str, Any] = {"compute": {}}


@pytest.mark.contract("T-11", "T-15", "T-16", "GT-19")
def test_request_is_a_span_below_its_callers(traced: Traced) -> None:
    spans = _call(traced, request("plain", 1, id="mine"))
    assert _tree(spans) == {"InferRequest": {"plain": _EXECUTED}}
    assert {span.trace_state for span in spans} == {"vendor=1"}
    assert _by_name(spans, "InferRequest").kind == 2  # SPAN_KIND_SERVER
    assert _by_name(spans, "plain").kind == 1  # SPAN_KIND_INTERNAL


@pytest.mark.contract("T-12", "T-13")
def test_attributes_and_events_are_tritons(traced: Traced) -> None:
    spans = _call(traced, request("plain", 1, id="mine"))
    model = _by_name(spans, "plain")
    found = attributes(model.attributes)
    assert found["triton.model_name"] == "plain"
    assert found["triton.model_version"] == 1
    assert found["triton.request_id"] == "mine"
    assert found["triton.trace_id"] > 0
    assert found["triton.trace_parent_id"] == 0
    assert [event.name for event in model.events] == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    assert "GRPC_SEND_END" in [event.name for event in _by_name(spans, "InferRequest").events]
    compute = _by_name(spans, "compute")
    assert compute.events[0].name == "COMPUTE_START"
    assert compute.events[-1].name == "COMPUTE_END"
    root = attributes(_by_name(spans, "InferRequest").attributes)
    assert root["rpc.system"] == "grpc"
    assert root["rpc.service"] == "inference.GRPCInferenceService"
    assert root["rpc.method"] == "ModelInfer"
    assert root["rpc.grpc.status_code"] == 0
    assert root["network.peer.address"] == "127.0.0.1"
    assert root["network.peer.port"] > 0


@pytest.mark.contract("E-16", "T-11")
def test_steps_and_calls_of_models_are_below_what_made_them(traced: Traced) -> None:
    spans = _call(traced, request("ensemble", 1))
    inner = {"plain": _EXECUTED, **_EXECUTED}
    assert _tree(spans)["InferRequest"]["ensemble"]["bls"] == inner
    outer = attributes(_by_name(spans, "ensemble").attributes)
    step = attributes(_by_name(spans, "bls").attributes)
    assert step["triton.trace_parent_id"] == outer["triton.trace_id"]


def test_http_request_has_the_attributes_of_http(traced: Traced) -> None:
    root = attributes(_by_name(_post(traced, "plain/infer", _body(1)), "InferRequest").attributes)
    assert root["http.request.method"] == "POST"
    assert root["http.route"] == "/v2/models/{model}/infer"
    assert root["http.response.status_code"] == 200
    assert root["url.path"] == "/v2/models/plain/infer"
    assert root["network.protocol.version"] == "1.1"


def test_refused_http_requests_are_exported_too(traced: Traced) -> None:
    root = _by_name(_post(traced, "plain/infer", {"inputs": []}), "InferRequest")
    assert attributes(root.attributes)["http.response.status_code"] == 400
    assert "Got input(s) []" in root.status.message


_RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded_spans.json").read_text())
"""Spans of the real server: for each request names, types of attributes, events, children."""

_NAMES = {
    "identity_fp32": "plain",
    "identity_fp32_cache": "cached",
    "bls_traced": "bls",
    "repeat_int32": "stream",
}


@pytest.mark.contract("T-11", "T-12", "T-13")
@pytest.mark.parametrize(
    ("case", "ask"),
    [
        ("gRPC", lambda traced: _call(traced, request("plain", 1, id="mine"))),
        ("HTTP", lambda traced: _post(traced, "plain/infer", _body(1))),
        ("call of a model", lambda traced: _call(traced, request("bls", 1, id="mine"))),
        ("decoupled stream", lambda traced: _stream(traced, request("stream", 3, id="mine"))),
        ("generate", lambda traced: _post(traced, "plain/generate", {"IN": [1.0]})),
        ("generate stream", lambda traced: _post(traced, "stream/generate_stream", {"IN": [2.0]})),
        ("cache hit", lambda traced: [_call(traced, request("cached", 1)) for _ in "12"][1]),
    ],
)
def test_spans_are_those_of_the_real_server(
    traced: Traced, case: str, ask: Callable[[Traced], list[Any]]
) -> None:
    """Each of its spans is there, with its attributes, and its events in their order."""
    spans = ask(traced)
    _compare(_RECORDED[case], spans, _SPAN.to_bytes(8, "big"))


def _compare(expected: dict[str, Any], spans: list[Any], parent: bytes) -> None:
    name = _NAMES.get(expected["name"], expected["name"])
    (found,) = [s for s in spans if s.name == name and s.parent_span_id == parent]
    values = attributes(found.attributes)
    kinds = {key: type(values.get(key)).__name__ for key in expected["attributes"]}
    assert kinds == expected["attributes"]
    events = iter(dict.fromkeys(event.name for event in found.events))
    # How many responses are sent at a time is a matter of chance.
    assert [each for each in dict.fromkeys(expected["events"]) if each not in events] == []
    for child in expected["children"]:
        _compare(child, spans, found.span_id)


def test_failed_request_has_the_error(traced: Traced) -> None:
    spans = _call(traced, request("plain"))  # a tensor of no elements is refused by nobody
    assert _by_name(spans, "InferRequest").status.code == 0
    message = request("plain", 1)
    message.inputs[0].datatype = "INT32"
    (root,) = [s for s in _call(traced, message) if s.name == "InferRequest"]
    assert root.status.code == 2
    assert "datatype" in root.status.message or "data-type" in root.status.message
    found = attributes(root.attributes)
    assert found["error.type"] == "InvalidRequestError"
    assert found["rpc.grpc.status_code"] == 3


def test_deadline_in_the_queue_is_the_error_of_the_request(traced: Traced) -> None:
    trace_id, metadata = _context()
    channel, service = stub(traced.server.grpc)
    grpc.channel_ready_future(channel).result()  # the deadline is not that of the connection
    with channel, pytest.raises(grpc.RpcError):
        service.ModelInfer(request("batched", 1, rows=1), metadata=metadata, timeout=5.0)
    spans = _spans(traced, trace_id)
    assert [span.name for span in spans] == ["InferRequest", "batched"]
    kinds = {attributes(span.attributes).get("error.type") for span in spans}
    assert kinds <= {"DeadlineExceededError", "RequestCancelledError"}


@pytest.mark.contract("T-13")
def test_cancelled_request_has_its_events(traced: Traced) -> None:
    trace_id, metadata = _context()
    channel, service = stub(traced.server.grpc)
    with channel:
        call = service.ModelInfer.future(request("endless", 1), metadata=metadata, timeout=60)
        wait_until((traced.models / "endless" / "1" / "begun").exists)
        call.cancel()
        spans = _spans(traced, trace_id)
    assert {span.name: [event.name for event in span.events] for span in spans} == {
        "InferRequest": ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END"],
        "endless": ["REQUEST_START", "QUEUE_START", "REQUEST_END"],
        "compute": ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"],
    }


@pytest.mark.contract("T-11", "T-13")
@pytest.mark.parametrize(
    ("model", "counts"),
    [
        ("plain", {"InferRequest": 1, "plain": 1, "compute": 1}),
        ("bls", {"InferRequest": 1, "bls": 1, "plain": 1, "compute": 2}),
        ("ensemble", {"InferRequest": 1, "ensemble": 1, "bls": 1, "plain": 2, "compute": 3}),
    ],
)
def test_there_are_no_more_spans_and_events_than_tritons(
    traced: Traced, model: str, counts: dict[str, int]
) -> None:
    spans = _call(traced, request(model, 1))
    assert Counter(span.name for span in spans) == counts
    events = {3: ("plain", "bls", "ensemble"), 4: ("compute",), 5: ("InferRequest",)}
    allowed = {name: number for number, names in events.items() for name in names}
    assert all(len(span.events) == allowed[span.name] for span in spans)


def test_batch_is_linked_with_its_requests(traced: Traced) -> None:
    messages = [request("batched", number, rows=1) for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda message: _call(traced, message), messages))
    traced.collector.wait_for(lambda: traced.collector.named("batch batched"))
    (batch,) = traced.collector.named("batch batched")
    assert attributes(batch.attributes)["penstock.batch.requests"] == 4
    models = {_by_name(spans, "batched").span_id for spans in answers}
    assert {link.span_id for link in batch.links} == models
    links = [link for spans in answers for link in _by_name(spans, "compute").links]
    assert [link.span_id for link in links] == [batch.span_id] * 4
    assert {link.trace_id for link in links} == {batch.trace_id}


@pytest.mark.parametrize(
    "metadata",
    [
        [("traceparent", "00-" + "1" * 31 + "-00000000000000aa-01")],
        [("traceparent", "ff-" + "2" * 32 + "-00000000000000aa-01")],
        [("traceparent", "00-" + "0" * 32 + "-00000000000000aa-01")],
    ],
)
def test_bad_context_starts_a_new_trace(traced: Traced, metadata: list[tuple[str, str]]) -> None:
    before = len(traced.collector.named("InferRequest"))
    channel, service = stub(traced.server.grpc)
    with channel:
        service.ModelInfer(request("plain", 1), metadata=metadata, timeout=60)
    traced.collector.wait_for(lambda: len(traced.collector.named("InferRequest")) > before)
    root = traced.collector.named("InferRequest")[before]
    assert root.parent_span_id == b""


@pytest.mark.contract("T-14")
def test_service_has_tritons_name(traced: Traced) -> None:
    _call(traced, request("plain", 1))
    assert traced.collector.resources[0]["service.name"] == "triton-inference-server"


def test_request_with_large_baggage_goes_on(traced: Traced) -> None:
    trace_id, metadata = _context()
    channel, service = stub(traced.server.grpc)
    with channel:
        more = [*metadata[:2], ("baggage", "k=" + "v" * 60_000)]
        service.ModelInfer(request("plain", 1), metadata=more, timeout=60)
    assert _spans(traced, trace_id)


def test_metrics_count_what_was_exported(traced: Traced) -> None:
    def exported() -> float:
        with urllib.request.urlopen(traced.server.metrics) as reply:
            page = reply.read().decode()
        name = "penstock_trace_spans_exported_total "
        (line,) = [line for line in page.splitlines() if line.startswith(name)]
        return float(line.split()[1])

    before = exported()
    _call(traced, request("plain", 1))
    wait_until(lambda: exported() >= before + 3)  # the exporter tells the server afterwards


def test_environment_alone_exports_failures_over_grpc_and_the_exit_waits_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail rule: nothing is sampled, and what fails is exported all the same."""
    with GrpcCollector() as collector:
        for name, value in {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_TRACES_SAMPLER": "traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }.items():
            monkeypatch.setenv(name, value)
        tail = "--trace-config=opentelemetry,always_on_error=true"
        one = ["--model-control-mode=explicit", "--load-model=plain", "--exit-timeout-secs=2"]
        models = write_models(tmp_path / "models")
        with serving(models, tmp_path / "log", tail, *one) as server:
            channel, service = stub(server.grpc)
            with channel:
                service.ModelInfer(request("plain", 1), timeout=60)
                wrong = request("plain", 1)
                wrong.inputs[0].datatype = "INT32"
                with pytest.raises(grpc.RpcError):
                    service.ModelInfer(wrong, timeout=60)
                collector.wait_for(lambda: collector.named("InferRequest"))
                assert [span.name for span in collector.spans] == ["InferRequest"]
                _kill_exporter(server, tmp_path / "log")
                collector.open.clear()
                with pytest.raises(grpc.RpcError):
                    service.ModelInfer(wrong, timeout=60)
            wait_until(lambda: collector.requests > 1)
            left = server.family()
            assert server.stop() == 0  # though the collector answers nobody
            assert not any(map(alive, left))


def test_slow_requests_are_exported_though_none_is_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here every request is slow."""
    with GrpcCollector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        settings = f"url={collector.url}", "sampler=always_off", "slow_threshold_ms=0.001"
        flags = [f"--trace-config=opentelemetry,{each}" for each in settings]
        one = ["--trace-config=level=TIMESTAMPS", "--trace-config=mode=opentelemetry"]
        one += ["--model-control-mode=explicit", "--load-model=plain"]
        models = write_models(tmp_path / "models")
        with serving(models, tmp_path / "log", *flags, *one) as server:
            channel, service = stub(server.grpc)
            with channel:
                service.ModelInfer(request("plain", 1), timeout=60)
            collector.wait_for(lambda: collector.named("InferRequest"))
            assert collector.named("InferRequest")


def _kill_exporter(server: Served, log: Path) -> None:
    """Kill the exporter process, and wait for the next one."""
    (first,) = _exporters(server)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not alive(first) and _exporters(server) not in ([], [first]))
    assert "the exporter process has ended: signal SIGKILL" in log.read_text()


def _exporters(server: Served) -> list[int]:
    return [pid for pid in server.family() if b"penstock.tracing.exporter" in command_of(pid)]
