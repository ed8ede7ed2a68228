"""A whole server in its two modes: what models see is as recorded from Triton, spans arrive."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from backends.python.traced import models
from backends.python.traced.house import CONFIG, write
from harness.serving import Served, serving, wait_until
from tracing.export.collector import HttpCollector

pytestmark = pytest.mark.slow

_RECORDED = json.loads((Path(__file__).parent / "triton_context.json").read_text())
_ASKED = ("none", "traceparent", "not sampled", "state and baggage")

_CLIENT = """
import json, sys
import numpy as np, tritonclient.grpc as grpc

address, model, text, headers = sys.argv[1:]
tensor = grpc.InferInput("IN", [1], "BYTES")
tensor.set_data_from_numpy(np.array([text.encode()], np.object_))
with grpc.InferenceServerClient(address) as client:
    answer = client.infer(model, [tensor], headers=json.loads(headers) or None)
print(answer.as_numpy("OUT")[0].decode())
"""


class Traced(NamedTuple):
    server: Served
    collector: HttpCollector


def _grpc(server: Served, model: str, text: str, headers: dict[str, str]) -> Any:
    """The answer that `tritonclient` gets, in a process of its own."""
    arguments = [server.grpc, model, text, json.dumps(headers)]
    command = [sys.executable, "-c", _CLIENT, *arguments]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    return json.loads(done.stdout)


def _http(server: Served, model: str, headers: dict[str, str]) -> Any:
    tensor = {"name": "IN", "datatype": "BYTES", "shape": [1], "data": [""]}
    address = f"http://{server.http}/v2/models/{model}/infer"
    body = json.dumps({"inputs": [tensor]}).encode()
    with urllib.request.urlopen(urllib.request.Request(address, body, headers)) as reply:
        return json.loads(json.load(reply)["outputs"][0]["data"][0])


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exported") / "models"
    write(root, "leaf", models.LEAF, CONFIG)
    write(root, "spans", models.SPANS, CONFIG)
    write(root, "calls_spans", models.CALLS_SPANS, CONFIG)
    return root


@pytest.fixture(scope="module")
def traced(repository: Path) -> Iterator[Traced]:
    """A server that traces every request, and the collector that it exports to."""
    with HttpCollector() as collector:
        options = ["mode=opentelemetry", "level=TIMESTAMPS", "rate=1"]
        options += [f"opentelemetry,url={collector.url}", "opentelemetry,bsp_schedule_delay=50"]
        arguments = [f"--trace-config={option}" for option in options]
        with serving(repository, repository.parent / "log", *arguments) as served:
            yield Traced(served, collector)


def _form(context: str | None) -> str | None:
    """The context with letters for digits of ids that no caller gave."""
    if context is None or context == "None":
        return None
    return re.sub(r"00-(?!0af7)\w{32}-\w{16}|(?<=319c-)\w{16}", "id", context)


@pytest.mark.contract("T-17")
@pytest.mark.parametrize("asked", _ASKED)
def test_context_is_as_recorded(traced: Traced, asked: str) -> None:
    recorded = _RECORDED["opentelemetry, rate 1"][asked]
    assert _form(_http(traced.server, "leaf", recorded["headers"])) == _form(recorded["http"])


@pytest.mark.contract("T-17", "GT-19")
def test_state_comes_by_grpc_too(traced: Traced) -> None:
    """Triton takes it from HTTP headers only."""
    recorded = _RECORDED["opentelemetry, rate 1"]["state and baggage"]
    seen = _grpc(traced.server, "leaf", "", recorded["headers"])
    assert _form(seen) == _form(recorded["http"])


@pytest.mark.contract("T-17")
def test_no_context_in_the_triton_mode(repository: Path, tmp_path: Path) -> None:
    options = [f"triton,file={tmp_path}/trace", "rate=1", "level=TIMESTAMPS"]
    arguments = [f"--trace-config={option}" for option in options]
    recorded = _RECORDED["triton"]
    with serving(repository, tmp_path / "log", *arguments) as served:
        for asked in recorded.values():
            assert _http(served, "leaf", asked["headers"]) is None
    assert {_form(asked["http"]) for asked in recorded.values()} == {None}


@pytest.mark.contract("T-17", "T-23")
def test_spans_of_models_are_children_of_their_requests(traced: Traced) -> None:
    """Two models in processes of their own, one of which calls the other; one exporter."""
    caller = "00-0af7651916cd43dd8448eb211c80319e-b7ad6b7169203331-01"
    headers = {"traceparent": caller, "baggage": "k=v"}
    assert _grpc(traced.server, "calls_spans", "x", headers) == "v"
    trace_id = int(caller.split("-")[1], 16)
    wait_until(lambda: any(s.name == "InferRequest" for s in traced.collector.trace(trace_id)))
    spans = {span.span_id: span for span in traced.collector.trace(trace_id)}
    parents = {
        span.name: spans[span.parent_span_id].name
        for span in spans.values()
        if span.parent_span_id in spans and span.name not in ("queue", "compute")
    }
    assert parents == {
        "calls_spans": "InferRequest",
        "outer": "calls_spans",
        "spans": "calls_spans",
        "look": "spans",
        "deeper": "look",
        "x": "spans",
    }
    look = next(span for span in spans.values() if span.name == "look")
    request = spans[look.parent_span_id]
    assert request.start_time_unix_nano <= look.start_time_unix_nano
    assert look.end_time_unix_nano <= request.end_time_unix_nano
    assert [event.name for event in look.events] == ["found"]
    assert look.links[0].span_id == (0x18).to_bytes(8, "big")
