"""What clients and operators see of models that calls load."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from models.residency.repository import Repository
from models.residency.test_demand import (  # noqa: F401 - fixtures
    Asked,
    Start,
    repository,
    start,
)
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol import grpc_service_pb2_grpc as rpc

_SPEAKER = """backend: "python"
input [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] } ]
"""


def test_an_explanation_tells_how_long_a_request_waited_for_the_load(
    start: Start,  # noqa: F811
    repository: Repository,  # noqa: F811
) -> None:
    repository.add("plain")
    repository.add_ensemble("pipe", "plain", "plain")
    told = []
    with start() as server:
        body = {"inputs": [{"name": "X", "shape": [1], "datatype": "FP32", "data": [0]}]}
        for _ in range(2):
            _, _, headers = server.post(
                "/v2/models/pipe/infer", body, headers={"penstock-explain": "1"}
            )
            told.append(json.loads(headers["penstock-explain"]))
        page = server.page("application/openmetrics-text")
    assert told[0]["waited_for_load_us"] > 1000
    assert told[0]["waited_for_load_us"] <= told[0]["total_us"]
    assert "waited_for_load_us" not in told[1]
    waits = [line for line in page.splitlines() if "load_wait_seconds_bucket" in line]
    assert any(told[0]["trace_id"] in line for line in waits)


def test_openais_list_has_models_that_are_not_loaded(
    start: Start,  # noqa: F811
    repository: Repository,  # noqa: F811
) -> None:
    repository.add("plain")
    repository.write("speaks", _SPEAKER, "import nothing_that_there_is")
    with start() as server:
        status, text, _ = server.get("/v1/models")
        assert (status, [one["id"] for one in json.loads(text)["data"]]) == (200, ["speaks"])
        assert repository.loads() == []


def _told(server: Asked, name: str) -> tuple[bool, str, str]:
    """Whether a model is ready, and whether it is loaded as gRPC and HTTP tell it."""
    with grpc.insecure_channel(server.served.grpc) as channel:
        stub = rpc.GRPCInferenceServiceStub(channel)
        answer, call = stub.ModelReady.with_call(pb.ModelReadyRequest(name=name), timeout=20)
    over_grpc = dict(call.trailing_metadata())["penstock-resident"]
    headers = server.get(f"/v2/models/{name}/ready")[2]
    return answer.ready, over_grpc, headers["penstock-resident"]


def test_an_alias_is_told_as_loaded_when_its_target_is(
    start: Start,  # noqa: F811
    repository: Repository,  # noqa: F811
) -> None:
    repository.add("plain")
    repository.add("other")
    with start() as server:
        targets = [{"model": "plain", "weight": 90}, {"model": "other", "weight": 10}]
        assert server.post("/v2/repository/aliases/alias", {"targets": targets})[0] == 200
        assert _told(server, "alias") == (True, "false", "false")
        server.answer("plain")
        assert _told(server, "alias") == (True, "true", "true")
        server.client.unload_model("plain")
        assert _told(server, "alias") == (True, "false", "false")


_WAITING = """import os, time
from penstock.model import Model, Response

while not os.path.exists({go!r}):
    time.sleep(0.01)


class Talks(Model):
    async def infer(self, request):
        {does}
        yield Response({{"text_output": ["Once"]}})
"""
_TALKING = _SPEAKER.replace(
    'backend: "python"\n', 'backend: "python"\nmodel_transaction_policy { decoupled: true }\n'
)
_GENERATE = ("/v2/models/talks/generate_stream", {"text_input": "a"})
_CHAT = (
    "/v1/chat/completions",
    {"model": "talks", "stream": True, "messages": [{"role": "user", "content": "a"}]},
)


def _streamed(server: Asked, path: str, body: Any, go: Path) -> tuple[httpx.Response, list[str]]:
    """An answer and its events, of a model whose load ends once the first comment has come."""
    url = f"http://{server.served.http}{path}"
    events = []
    with httpx.stream("POST", url, json=body, timeout=60) as answer:
        for line in answer.iter_lines():
            if line.startswith(":"):
                go.touch()
            elif line:
                events.append(line)
    return answer, events


@pytest.mark.parametrize(("path", "body"), [_GENERATE, _CHAT], ids=["generate", "openai"])
@pytest.mark.parametrize("does", ["pass", "raise ValueError('no story')"], ids=["well", "fails"])
def test_a_stream_is_kept_alive_while_its_model_is_loaded(
    start: Start,  # noqa: F811
    repository: Repository,  # noqa: F811
    tmp_path: Path,
    path: str,
    body: Any,
    does: str,
) -> None:
    go = tmp_path / "go"
    repository.write("talks", _TALKING, _WAITING.format(go=str(go), does=does))
    with start("--sse-keepalive-secs=1") as server:
        answer, events = _streamed(server, path, body, go)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert all(event.startswith("data: ") for event in events)
    assert any(("Once" if does == "pass" else "no story") in event for event in events)


@pytest.mark.parametrize(("path", "body"), [_GENERATE, _CHAT], ids=["generate", "openai"])
def test_a_stream_that_was_kept_alive_tells_that_the_load_failed(
    start: Start,  # noqa: F811
    repository: Repository,  # noqa: F811
    tmp_path: Path,
    path: str,
    body: Any,
) -> None:
    go = tmp_path / "go"
    code = _WAITING.format(go=str(go), does="pass") + "\nraise ValueError('no weights')\n"
    repository.write("talks", _TALKING, code)
    with start("--sse-keepalive-secs=1") as server:
        answer, events = _streamed(server, path, body, go)
    assert answer.status_code == 200
    (event,) = events
    assert event.startswith('data: {"error":')
    assert "no weights" in event


@pytest.mark.needs(
    "onnxruntime", "" if find_spec("onnxruntime") else "there is no onnxruntime here"
)
def test_the_engine_of_onnx_models_is_there_before_the_first_call(
    start: Start,  # noqa: F811
    repository: Repository,  # noqa: F811
) -> None:
    repository.write("graph", 'backend: "onnxruntime"', "")
    repository.add("plain")
    with start() as server:
        maps = Path(f"/proc/{server.served.process.pid}/maps")
        assert "onnxruntime" in maps.read_text()
        assert server.states() == {"graph": "on demand", "plain": "on demand"}
    with start("--spare-processes=0") as server:
        maps = Path(f"/proc/{server.served.process.pid}/maps")
        assert "onnxruntime" not in maps.read_text()
