"""Models that are loaded and unloaded on request."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from fakes import FakeBuilder, make_request, marks, write_model
from harness.recorded import answers, needs_answers
from penstock.core.errors import (
    InternalError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.server.answers import ServerMetadata
from penstock.server.control_policy import ControlPolicy
from penstock.server.server import InferenceServer
from server.house import House, index


@pytest.mark.contract("R-12")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "Model name cannot be empty. Please enter a valid name to deploy."),
        (" \t", "Model name cannot be empty. Please enter a valid name to deploy."),
        (" ..", "invalid model name '..', model name must not contain path traversal characters"),
        ("a/b ", "invalid model name 'a/b', model name must not contain path traversal characters"),
    ],
)
async def test_names_are_trimmed_and_checked(house: House, name: str, told: str) -> None:
    server = await house.started()
    with pytest.raises(InvalidRequestError) as refused:
        await server.load(name, {})
    assert refused.value.message == told
    await server.load(" m\n", {})
    assert await server.model_ready("m", "")
    await server.unload("m ")
    assert not await server.model_ready("m", "")


@pytest.mark.contract("M-02")
async def test_models_are_loaded_and_unloaded_by_name(house: House) -> None:
    server = await house.started()
    await server.load("m", {})
    assert await server.model_ready("m", "")
    await server.unload("m")
    assert not await server.model_ready("m", "")


@pytest.mark.contract("M-07")
@needs_answers
async def test_a_request_across_an_unload_is_answered_as_by_the_real_server(house: House) -> None:
    recorded = answers("model_control.json")
    write_model(house.path, "slow")
    house.builder.held = True
    server = await house.started("slow")
    stream = server.infer(make_request("a", model_name="slow"))
    await asyncio.wait_for(server.unload("slow"), 20)
    with pytest.raises(NotFoundError) as refused:
        server.infer(make_request("b", model_name="slow"))
    models = recorded["index while slow unloads"]["response"]["models"]
    assert refused.value.message == recorded["infer while unloading"]["message"]
    assert {"name": "slow", "version": "1", "state": "UNLOADING"} in models
    assert "slow 1 UNLOADING" in await index(server)
    house.builder.instances[0].release()
    assert await marks(stream) == ["a"]


@pytest.mark.contract("X-20", "M-01")
@needs_answers
async def test_without_explicit_control_models_cannot_be_loaded_or_unloaded(
    tmp_path: Path,
) -> None:
    server = House(tmp_path, explicit_control=False).server
    text = answers("grpc_metadata.json")["load in mode none"]["message"]
    for control in (server.load("m", {}), server.unload("m")):
        with pytest.raises(UnavailableError) as refused:
            await control
        assert refused.value.message == text


async def test_files_of_a_load_stand_in_for_those_of_the_repository(house: House) -> None:
    server = await house.started()
    await server.load("m", {"file:7/model": b"", "config": '{"backend": "fake"}'})
    assert (await server.model_metadata("m", "")).versions == ("7",)
    await house.unload("m")


_LIBRARY = '"model_operations": {"op_library_filename": ["/proc/self/fd/23"]}'
_ENVIRONMENT = '"parameters": {"EXECUTION_ENV_PATH": {"string_value": "/tmp/environment"}}'
_PLUGIN = (
    '"optimization": {"execution_accelerators": {"gpu_execution_accelerator":'
    ' [{"name": "tensorrt", "parameters": {"trt_extra_plugin_lib_paths": "/tmp/x.so"}}]}}'
)


@pytest.mark.parametrize("named", [_LIBRARY, _ENVIRONMENT, _PLUGIN])
async def test_configurations_of_strangers_name_no_code(house: House, named: str) -> None:
    server = await house.started()
    loading = {"config": f'{{"backend": "fake", {named}}}'}
    with pytest.raises(UnsupportedError, match="is refused in the configuration of a load request"):
        await server.load("m", loading)
    await server.load("m", loading, trusted=True)
    assert await server.model_ready("m", "")


async def test_clients_that_may_bring_files_may_name_code(tmp_path: Path) -> None:
    write_model(tmp_path)
    server = await House(tmp_path, control_policy=ControlPolicy(upload=True)).started()
    await server.load("m", {"config": f'{{"backend": "fake", {_ENVIRONMENT}}}'})
    assert await server.model_ready("m", "")


async def test_code_that_the_operator_names_may_be_named_by_all(tmp_path: Path) -> None:
    """A client takes the configuration that there is, changes what it wants, and sends it back."""
    own = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "/tmp/environment" } }'
    write_model(tmp_path, config=own)
    server = await House(tmp_path).started()
    await server.load("m", {"config": f'{{"backend": "fake", {_ENVIRONMENT}}}'})
    assert await server.model_ready("m", "")


async def test_the_index_holds_what_the_repository_has(house: House) -> None:
    """As the real server has it: what came with a request is not listed."""
    server = await house.started("m")
    await server.load("made", {"file:7/model": b"", "config": '{"backend": "fake"}'})
    assert await index(server) == ["m 1 READY", "two"]
    await house.unload("made")


@needs_answers
async def test_a_model_of_two_repositories_is_unavailable(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_model(tmp_path / folder)
    repository = ModelRepository([tmp_path / "one", tmp_path / "two"])
    lifecycle = ModelLifecycle(repository, FakeBuilder())
    server = InferenceServer(ServerMetadata("penstock", "1"), repository, lifecycle)
    await server.start(["m"])
    recorded = answers("options.json")["same name in two repositories, no namespacing"]
    (entry,) = await server.index()
    (expected,) = json.loads(recorded["body"])
    assert (entry.state, entry.reason) == (expected["state"], expected["reason"])


@pytest.mark.contract("M-15")
@needs_answers
@pytest.mark.parametrize("case", ["load unknown"])
async def test_a_model_that_is_not_there_is_refused_in_the_words_of_the_real_server(
    house: House, case: str
) -> None:
    answer = answers("model_control.json")[case]
    server = await house.started()
    with pytest.raises(InternalError) as refused:
        await server.load(answer["request"]["model_name"], {})
    assert refused.value.message == answer["message"]


@needs_answers
@pytest.mark.parametrize("case", ["unload unknown", "unload not loaded", "unload twice"])
async def test_what_does_not_serve_can_be_unloaded_as_in_the_real_server(
    house: House, case: str
) -> None:
    answer = answers("model_control.json")[case]
    server = await house.started()
    await server.unload(answer["request"]["model_name"])
    assert answer["code"] == "OK"
