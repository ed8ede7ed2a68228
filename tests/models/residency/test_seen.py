"""What clients and operators see of models that calls load."""

from __future__ import annotations

import json

import grpc

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
