"""The standard health service."""

from __future__ import annotations

import grpc
import pytest

from penstock.core.errors import UnavailableError
from penstock.protocol import health_pb2 as pb
from penstock.settings import GrpcSettings
from rpc.manual import ManualServer
from rpc.serving import HEALTH, SERVICE, Client, connected

SERVING, NOT_SERVING = pb.HealthCheckResponse.SERVING, pb.HealthCheckResponse.NOT_SERVING


class Healthy(ManualServer):
    def __init__(self, ready: bool | Exception) -> None:
        super().__init__()
        self._ready = ready

    async def ready(self) -> bool:
        if isinstance(self._ready, Exception):
            raise self._ready
        return self._ready


@pytest.mark.parametrize("service", ["", SERVICE, "anything"])
async def test_ready_server_serves_whatever_is_asked_for(local: GrpcSettings, service: str) -> None:
    async with connected(Healthy(True), local) as client:
        assert (await client.check(service)).status == SERVING


@pytest.mark.parametrize("ready", [False, UnavailableError("Server exiting")])
async def test_server_that_is_not_ready_does_not_serve(
    local: GrpcSettings, ready: bool | Exception
) -> None:
    async with connected(Healthy(ready), local) as client:
        assert (await client.check()).status == NOT_SERVING


@pytest.mark.parametrize("name", ["Watch", "List"])
async def test_there_is_nothing_but_the_check(local: GrpcSettings, name: str) -> None:
    async with connected(Healthy(True), local) as client:
        assert await code_of(client, f"/{HEALTH}/{name}") is grpc.StatusCode.UNIMPLEMENTED


async def code_of(client: Client, path: str) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await client.raw(path)
    return failed.value.code()
