"""Files of models in load requests, which only some clients may bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import grpc
import pytest

from penstock.protocol import grpc_service_pb2 as pb
from penstock.server.control_policy import ControlPolicy
from penstock.settings import Feature, GrpcSettings, Restriction
from rpc.manual import ManualServer
from rpc.serving import connected

ADMIN = Restriction(frozenset({Feature.MODEL_REPOSITORY}), "admin", "secret")
SECRET = (("triton-grpc-protocol-admin", "secret"),)


class Loaded(ManualServer):
    """Notes what it is to load; takes files from all clients where it `uploads`."""

    def __init__(self, *, uploads: bool = False) -> None:
        super().__init__()
        self.control_policy = ControlPolicy(upload=uploads)
        self.loaded: list[Mapping[str, str | bytes]] = []

    async def load(
        self, name: str, parameters: Mapping[str, str | bytes], *, trusted: bool = False
    ) -> None:
        self.loaded.append(parameters)


def request(*names: str) -> pb.RepositoryModelLoadRequest:
    message = pb.RepositoryModelLoadRequest(model_name="m")
    message.parameters["config"].string_param = "{}"
    for name in names:
        message.parameters[name].bytes_param = b"x"
    return message


async def test_files_of_strangers_are_refused(local: GrpcSettings) -> None:
    server = Loaded()
    async with connected(server, local) as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.call("RepositoryModelLoad", request("file:1/model.py"))
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "--allow-model-upload=true" in (refused.value.details() or "")
    assert server.loaded == []


async def test_configurations_need_no_leave(local: GrpcSettings) -> None:
    server = Loaded()
    async with connected(server, local) as client:
        await client.call("RepositoryModelLoad", request())
    assert server.loaded == [{"config": "{}"}]


async def test_files_are_taken_where_the_server_allows_them(local: GrpcSettings) -> None:
    server = Loaded(uploads=True)
    async with connected(server, local) as client:
        await client.call("RepositoryModelLoad", request("file:1/m"))
    assert server.loaded == [{"config": "{}", "file:1/m": b"x"}]


async def test_who_knows_the_secret_may_bring_files(local: GrpcSettings) -> None:
    server = Loaded()
    async with connected(server, replace(local, restrictions=(ADMIN,))) as client:
        await client.call("RepositoryModelLoad", request("file:1/m"), metadata=SECRET)
    assert server.loaded == [{"config": "{}", "file:1/m": b"x"}]


async def test_a_secure_server_takes_no_files_from_who_knows_the_secret(
    local: GrpcSettings,
) -> None:
    server = Loaded()
    server.control_policy = ControlPolicy(by_secret=False)
    async with connected(server, replace(local, restrictions=(ADMIN,))) as client:
        with pytest.raises(grpc.aio.AioRpcError, match="started with --secure"):
            await client.call("RepositoryModelLoad", request("file:1/m"), metadata=SECRET)
    assert server.loaded == []
