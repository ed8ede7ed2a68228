"""Health, metadata and statistics on a port."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gateway.serving import FakeServer
from penstock.core.errors import UnavailableError
from penstock.inflight.statistics import Duration, ResponseStatistics, Statistics
from penstock.models.serving.answers import ModelStatistics

_MODEL = "/v2/models/numbers/ready"


@pytest.mark.contract("H-02", "H-03", "H-04")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/health/live", {"live": True}),
        ("/v2/health/ready", {"ready": True}),
        (_MODEL, {"name": "numbers", "ready": True}),
        ("/v2/models/numbers/versions/1/ready", {"name": "numbers", "ready": True}),
    ],
)
async def test_health_is_a_status_and_json(
    client: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    """Clients of Triton look at the status, those of the Open Inference Protocol at the body."""
    answer = await client.get(path)
    assert (answer.status_code, answer.json()) == (200, body)
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.contract("H-02", "H-03")
@pytest.mark.parametrize("name", ["live", "ready"])
async def test_bad_health_is_status_400(
    client: httpx.AsyncClient, server: FakeServer, name: str
) -> None:
    server.healthy = False
    answer = await client.get(f"/v2/health/{name}")
    assert (answer.status_code, answer.json()) == (400, {name: False})


@pytest.mark.contract("H-04")
async def test_model_that_is_not_ready_is_an_error(
    client: httpx.AsyncClient, server: FakeServer
) -> None:
    server.healthy = False
    answer = await client.get(_MODEL)
    assert (answer.status_code, answer.json()) == (400, {"error": "Model version not ready"})


@pytest.mark.contract("H-02", "H-03")
@pytest.mark.parametrize("name", ["live", "ready"])
async def test_server_that_exits_is_unavailable(
    client: httpx.AsyncClient, server: FakeServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def exiting() -> bool:
        raise UnavailableError("Server exiting")

    monkeypatch.setattr(server, name, exiting)
    answer = await client.get(f"/v2/health/{name}")
    assert (answer.status_code, answer.json()) == (503, {"error": "Server exiting"})


@pytest.mark.contract("H-01")
async def test_metadata_of_the_server(client: httpx.AsyncClient) -> None:
    metadata = (await client.get("/v2")).json()
    assert (metadata["name"], metadata["version"]) == ("fake", "1.2")
    assert "binary_tensor_data" in metadata["extensions"]


@pytest.mark.contract("H-05")
async def test_metadata_of_a_model(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v2/models/numbers/versions/1")).json() == {
        "name": "numbers",
        "versions": ["1"],
        "platform": "fake",
        "inputs": [{"name": "IN", "datatype": "FP32", "shape": [-1]}],
        "outputs": [],
    }


@pytest.mark.contract("H-06")
async def test_configuration_shows_defaults(client: httpx.AsyncClient) -> None:
    config = (await client.get("/v2/models/numbers/config")).json()
    assert (config["name"], config["max_batch_size"], config["batch_input"]) == ("numbers", 0, [])


@pytest.mark.contract("H-07", "ST-08")
@pytest.mark.parametrize("path", ["/v2/models/stats", "/v2/models/numbers/versions/1/stats"])
async def test_statistics_are_numbers(
    client: httpx.AsyncClient, server: FakeServer, path: str
) -> None:
    counted = Statistics(success=Duration(2, 3000), inference_count=5, last_inference=7)
    counted.executed(4, 1, 2, 3)
    counted.executed(1, 1, 1, 1)
    server.counted = (ModelStatistics("numbers", "1", counted),)
    (model,) = (await client.get(path)).json()["model_stats"]
    assert (model["name"], model["version"], model["last_inference"]) == ("numbers", "1", 7)
    assert (model["inference_count"], model["execution_count"]) == (5, 2)
    assert model["inference_stats"]["success"] == {"count": 2, "ns": 3000}
    assert model["inference_stats"]["cache_miss"] == {"count": 0, "ns": 0}
    assert [batch["batch_size"] for batch in model["batch_stats"]] == [1, 4]
    assert model["batch_stats"][1]["compute_infer"] == {"count": 1, "ns": 2}
    assert (model["response_stats"], model["memory_usage"]) == ({}, [])


@pytest.mark.contract("ST-04", "ST-08")
async def test_responses_are_counted_by_their_index(
    client: httpx.AsyncClient, server: FakeServer
) -> None:
    counted = Statistics(responses={0: ResponseStatistics()})
    counted.responses[0].empty_response.add(5)
    server.counted = (ModelStatistics("numbers", "1", counted),)
    (model,) = (await client.get("/v2/models/numbers/stats")).json()["model_stats"]
    zero = {"count": 0, "ns": 0}
    names = ("compute_infer", "compute_output", "success", "fail", "cancel")
    expected = dict.fromkeys(names, zero) | {"empty_response": {"count": 1, "ns": 5}}
    assert model["response_stats"] == {"0": expected}
