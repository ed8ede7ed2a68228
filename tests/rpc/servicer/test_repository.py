"""Models that come and go, over a real channel."""

from __future__ import annotations

import grpc
import pytest

from penstock.protocol import grpc_service_pb2 as pb
from rpc.servicer.calls import ONE, failure, states
from rpc.serving import Client, infer_request

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.contract("G-11", "G-12", "G-13")
async def test_models_come_and_go(controller: Client) -> None:
    load = pb.RepositoryModelLoadRequest(model_name="batched")
    assert await states(controller) == {}
    await controller.call("RepositoryModelLoad", load)
    assert await states(controller) == {("batched", "1"): "READY"}
    unload = pb.RepositoryModelUnloadRequest(model_name="batched")
    await controller.call("RepositoryModelUnload", unload)
    code, text = await failure(controller.call("ModelInfer", infer_request("batched", IN=ONE)))
    assert code is grpc.StatusCode.NOT_FOUND
    assert text == "Request for unknown model: 'batched' has no available versions"


@pytest.mark.contract("G-11")
async def test_index_names_models_that_were_never_loaded(controller: Client) -> None:
    models = (await controller.call("RepositoryIndex")).models
    assert [(model.name, model.state) for model in models] == [
        ("batched", ""),
        ("identity", ""),
        ("isolated", ""),
        ("repeat", ""),
    ]


@pytest.mark.contract("X-20")
async def test_models_are_not_controlled_unless_it_is_allowed(client: Client) -> None:
    request = pb.RepositoryModelLoadRequest(model_name="identity")
    code, text = await failure(client.call("RepositoryModelLoad", request))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert text == "explicit model load / unload is not allowed if polling is enabled"


@pytest.mark.contract("G-11")
@pytest.mark.parametrize(
    "name", ["RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"]
)
async def test_repository_cannot_be_chosen(controller: Client, name: str) -> None:
    request = getattr(pb, f"{name}Request")(repository_name="elsewhere")
    code, text = await failure(controller.call(name, request))
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert text == "'repository_name' specification is not supported"
