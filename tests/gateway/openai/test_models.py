"""Models as OpenAI's API lists, loads and unloads them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fakes import InstallBackend
from gateway.openai.speaking import OPENAI, speaking
from gateway.serving import LOCAL
from penstock.core.exit_deadline import ExitDeadline

_PLAIN = """
backend: "identity"
input { name: "X" data_type: TYPE_INT32 dims: 1 }
output { name: "Y" data_type: TYPE_INT32 dims: 1 }
"""
_WHOLE = """
platform: "ensemble"
input { name: "X" data_type: TYPE_INT32 dims: 1 }
output { name: "Y" data_type: TYPE_INT32 dims: 1 }
ensemble_scheduling { step {
  model_name: "plain" model_version: -1
  input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }
} }
"""


@pytest.mark.contract("OA-05", "OA-19")
async def test_models_are_listed_with_their_adapters(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    async with speaking(tmp_path, install_backend) as (_, client):
        listed = (await client.get("/v1/models")).json()
    assert listed["object"] == "list"
    assert [one["id"] for one in listed["data"]] == ["m", "m:loud"]
    assert {one["owned_by"] for one in listed["data"]} == {"Triton Inference Server"}


async def test_models_without_routes_are_not_listed(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    models = "mute", "missing"
    async with speaking(
        tmp_path, install_backend, OPENAI, LOCAL, *models, explicit_control=True
    ) as (server, client):
        (tmp_path / "models" / "plain" / "1").mkdir(parents=True)
        (tmp_path / "models" / "plain" / "config.pbtxt").write_text(_PLAIN)
        await server.load("plain", {})
        for _ in range(2):
            listed = (await client.get("/v1/models")).json()
            assert [one["id"] for one in listed["data"]] == ["m", "m:loud"]


@pytest.mark.contract("OA-06")
async def test_one_model_is_told(tmp_path: Path, install_backend: InstallBackend) -> None:
    async with speaking(tmp_path, install_backend) as (_, client):
        known = [(await client.get(f"/v1/models/{name}")).json()["id"] for name in ("m", "m:loud")]
        unknown = [await client.get(f"/v1/models/{name}") for name in ("lost", "m:lost")]
    assert known == ["m", "m:loud"]
    assert [one.status_code for one in unknown] == [404, 404]
    assert unknown[0].json()["error"]["message"] == "Unknown model: lost"


@pytest.mark.contract("OA-07")
async def test_models_are_loaded_and_unloaded(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    async with speaking(tmp_path, install_backend, OPENAI, LOCAL, explicit_control=True) as (
        _,
        client,
    ):
        loaded = await client.post("/v1/models/m/load")
        unloaded = await client.post("/v1/models/m/unload")
        again = await client.post("/v1/models/m/unload")
        back = await client.post("/v1/models/m/load")
    assert loaded.json()["error"]["message"] == "Model 'm' is already loaded"
    assert unloaded.json() == {"status": "success", "model": "m"}
    assert (again.status_code, back.status_code) == (404, 200)
    assert (back.json()["id"], back.json()["owned_by"]) == ("m", "Triton Inference Server")


@pytest.mark.contract("OA-07")
async def test_unloading_an_ensemble_leaves_its_parts(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    async with speaking(tmp_path, install_backend, OPENAI, LOCAL, explicit_control=True) as (
        server,
        client,
    ):
        for name, text in (("plain", _PLAIN), ("whole", _WHOLE)):
            (tmp_path / "models" / name / "1").mkdir(parents=True)
            (tmp_path / "models" / name / "config.pbtxt").write_text(text)
        await server.load("whole", {})
        answer = await client.post("/v1/models/whole/unload")
        ready = [await server.model_ready(name, "") for name in ("whole", "plain")]
    assert (answer.status_code, ready) == (200, [False, True])


@pytest.mark.contract("OA-07")
async def test_of_two_clients_that_change_a_model_at_once_one_does(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    async with speaking(tmp_path, install_backend, OPENAI, LOCAL, explicit_control=True) as (
        _,
        client,
    ):
        twice = [
            await asyncio.gather(*(client.post(f"/v1/models/m/{what}") for _ in range(2)))
            for what in ("unload", "load")
        ]
    assert [sorted(one.status_code for one in both) for both in twice] == [[200, 404], [200, 400]]


@pytest.mark.contract("OA-07", "OA-26")
@pytest.mark.parametrize("what", ["load", "unload"])
async def test_changes_of_models_need_explicit_control(
    tmp_path: Path, install_backend: InstallBackend, what: str
) -> None:
    async with speaking(tmp_path, install_backend) as (server, client):
        answer = await client.post(f"/v1/models/m/{what}")
        assert await server.model_ready("m", "")
    assert answer.status_code == 400
    expected = "Model load/unload requires --model-control-mode=explicit"
    assert answer.json()["error"]["message"] == expected


@pytest.mark.contract("OA-09")
async def test_readiness_is_told(tmp_path: Path, install_backend: InstallBackend) -> None:
    async with speaking(tmp_path, install_backend) as (server, client):
        assert (await client.get("/health/ready")).status_code == 200
        server.refuse_new_work(ExitDeadline(10))
        refused = await client.get("/health/ready")
    assert refused.status_code == 400
    expected = "Attached inference engine is not ready for inference requests."
    assert refused.json()["error"]["message"] == expected
