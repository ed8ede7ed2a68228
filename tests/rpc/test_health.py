"""The standard health service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes import turns
from penstock.core.errors import UnavailableError
from penstock.core.exit_deadline import ExitDeadline
from penstock.protocol import health_pb2 as pb
from penstock.server.server import InferenceServer
from penstock.settings import GrpcSettings
from rpc.manual import PATIENCE, ManualServer
from rpc.serving import HEALTH, SERVICE, Client, connected, open_models, write_models

UNKNOWN, SERVICE_UNKNOWN = pb.HealthCheckResponse.UNKNOWN, pb.HealthCheckResponse.SERVICE_UNKNOWN
SERVING, NOT_SERVING = pb.HealthCheckResponse.SERVING, pb.HealthCheckResponse.NOT_SERVING


class Healthy(ManualServer):
    def __init__(self, ready: bool | Exception) -> None:
        super().__init__()
        self._ready = ready

    async def ready(self) -> bool:
        if isinstance(self._ready, Exception):
            raise self._ready
        return self._ready


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[InferenceServer]:
    """With `identity` loaded, and others to be loaded."""
    async with open_models(write_models(tmp_path), explicit=True) as server:
        await server.load("identity", {})
        yield server


@pytest.fixture
async def client(server: InferenceServer, local: GrpcSettings) -> AsyncIterator[Client]:
    async with connected(server, local) as client:
        yield client


def watch(client: Client, service: str) -> Any:
    """The statuses of a service as they come."""
    return client.channel.unary_stream(
        f"/{HEALTH}/Watch",
        request_serializer=pb.HealthCheckRequest.SerializeToString,
        response_deserializer=pb.HealthCheckResponse.FromString,
    )(pb.HealthCheckRequest(service=service))


async def next_status(call: Any) -> int:
    answer = await asyncio.wait_for(call.read(), PATIENCE)
    assert isinstance(answer, pb.HealthCheckResponse)
    return answer.status


@pytest.mark.contract("G-22")
@pytest.mark.parametrize("service", ["", SERVICE, "anything"])
async def test_ready_server_answers_for_any_service(local: GrpcSettings, service: str) -> None:
    async with connected(Healthy(True), local) as client:
        assert (await client.check(service)).status == SERVING


@pytest.mark.contract("G-22")
@pytest.mark.parametrize(
    ("ready", "status"), [(False, NOT_SERVING), (UnavailableError("Server exiting"), UNKNOWN)]
)
async def test_server_that_is_not_ready_does_not_serve(
    local: GrpcSettings, ready: bool | Exception, status: int
) -> None:
    async with connected(Healthy(ready), local) as client:
        assert (await client.check()).status == status


async def test_a_model_has_a_status_of_its_own(client: Client, server: InferenceServer) -> None:
    assert (await client.check("identity")).status == SERVING
    await server.unload("identity")
    assert (await client.check("identity")).status == NOT_SERVING
    assert (await client.check()).status == SERVING


async def test_list_has_the_server_and_its_models(client: Client) -> None:
    answer = pb.HealthListResponse.FromString(await client.raw(f"/{HEALTH}/List"))
    assert {name: status.status for name, status in answer.statuses.items()} == {
        "": SERVING,
        SERVICE: SERVING,
        "identity": SERVING,
    }


async def test_watch_sends_changes_as_they_happen(client: Client, server: InferenceServer) -> None:
    call = watch(client, "batched")
    assert await next_status(call) == SERVICE_UNKNOWN
    load = asyncio.ensure_future(server.load("batched", {}))
    sent = [await next_status(call)]
    while sent[-1] != SERVING:
        sent.append(await next_status(call))
    await load
    assert set(sent) <= {NOT_SERVING, SERVING}
    await server.unload("batched")
    assert await next_status(call) == NOT_SERVING
    call.cancel()


async def test_watch_sends_a_status_once(client: Client, server: InferenceServer) -> None:
    call = watch(client, "identity")
    assert await next_status(call) == SERVING
    await server.load("batched", {})
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call.read(), 0.3)


async def test_watch_ends_with_the_server(client: Client, server: InferenceServer) -> None:
    call = watch(client, "")
    assert await next_status(call) == SERVING
    server.refuse_new_work(ExitDeadline(5))
    assert await next_status(call) == NOT_SERVING
    assert await asyncio.wait_for(call.code(), PATIENCE) is grpc.StatusCode.UNAVAILABLE


async def test_lists_at_the_same_time_have_one_answer(
    client: Client, server: InferenceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would ask every model else."""
    asked, all_there = 0, asyncio.Event()
    ready = server.ready

    async def counted() -> bool:
        nonlocal asked
        asked += 1
        await all_there.wait()
        return await ready()

    monkeypatch.setattr(server, "ready", counted)
    lists = [asyncio.ensure_future(client.raw(f"/{HEALTH}/List")) for _ in range(20)]
    await turns()
    await client.call("ServerLive")  # which comes behind them
    all_there.set()
    answers = await asyncio.gather(*lists)
    assert len(set(answers)) == 1
    assert asked < 20
