"""Channelz: counters of calls."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import grpc
import pytest

from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock.protocol import grpc_service_pb2
from penstock.rpc.server import open_grpc
from penstock.settings import CompressionLevel, GrpcSettings, KeepaliveSettings
from rpc.channelz.endpoint import Alive, Server, calm, other_client, served, until
from rpc.manual import PATIENCE
from rpc.serving import SERVICE, Client, channel_to


async def test_calls_are_counted_by_how_they_end(server: Server) -> None:
    before = await calm(server)
    client = Client(server.channel)
    await client.call("ServerLive")
    with pytest.raises(grpc.aio.AioRpcError):
        await client.raw(f"/{SERVICE}/Nothing")
    with pytest.raises(grpc.aio.AioRpcError):
        await client.raw(f"/{SERVICE}/ServerLive", b"\xff")
    cancelled = client.stream()
    await cancelled.write(grpc_service_pb2.ModelInferRequest(model_name="once"))
    await asyncio.wait_for(server.facade.asked.wait(), PATIENCE)
    cancelled.cancel()
    after = await calm(server)
    asked = after.calls_started - before.calls_started - 4  # GetServers, as often as it took
    assert asked >= 1
    assert after.calls_failed - before.calls_failed == 3
    assert after.calls_succeeded - before.calls_succeeded == asked + 1
    assert abs(after.last_call_started_timestamp.seconds - time.time()) < 60


async def test_connection_counts_streams_and_messages(server: Server) -> None:
    async with other_client(server) as client:
        await client.call("ServerLive")
        before = (await server.sockets())[-1].data
        for _ in range(3):
            await client.call("ServerLive")
        with pytest.raises(grpc.aio.AioRpcError):
            await client.raw(f"/{SERVICE}/ModelInfer", b"")
        after = (await server.sockets())[-1].data
    assert after.streams_started - before.streams_started == 4
    assert after.streams_succeeded - before.streams_succeeded == 4  # an error ends a stream well
    assert after.streams_failed == before.streams_failed
    assert after.messages_received - before.messages_received == 4
    assert after.messages_sent - before.messages_sent == 3
    now = time.time()
    assert abs(after.last_remote_stream_created_timestamp.seconds - now) < 60
    assert abs(after.last_message_sent_timestamp.seconds - now) < 60
    assert not after.HasField("last_local_stream_created_timestamp")
    if server.native:  # grpcio leaves out windows that it does not know
        assert after.local_flow_control_window.value > 0
        assert after.remote_flow_control_window.value > 0


async def test_cancelled_stream_has_failed(server: Server) -> None:
    async with other_client(server) as client:
        await client.call("ServerLive")
        before = (await server.sockets())[-1].data
        call = client.stream()
        await call.write(grpc_service_pb2.ModelInferRequest(model_name="once"))
        await asyncio.wait_for(server.facade.asked.wait(), PATIENCE)
        call.cancel()
        data = (await until(server, lambda sockets: sockets[-1].data.streams_failed > 0))[-1].data
    assert data.streams_failed - before.streams_failed == 1
    assert data.streams_started - before.streams_started == 1
    assert data.streams_succeeded == before.streams_succeeded


async def test_call_that_is_left_while_its_response_is_compressed_has_failed() -> None:
    """64 MiB, which takes some tenths of a second."""
    model = Alive()
    settings = GrpcSettings(
        address="127.0.0.1",
        port=0,
        channelz=True,
        response_compression=CompressionLevel.MEDIUM,
    )
    async with open_grpc(model, settings, ExitDeadline(0)) as port, channel_to(port) as channel:
        server = Server(port, channel, True)
        before = await calm(server)
        request = grpc_service_pb2.ModelInferRequest(model_name="once", id="large")
        call = Client(channel).method("ModelInfer")(request)
        await asyncio.wait_for(model.asked.wait(), PATIENCE)
        large = Tensor(DataType.UINT8, (64 << 20,), bytes(range(256)) * (1 << 18))
        model.streams["large"].send(InferenceResponse({"OUT": large}, final=True))
        await asyncio.sleep(0)
        call.cancel()
        after = await calm(server)
    assert after.calls_failed - before.calls_failed == 1


async def test_keepalives_are_counted(local: GrpcSettings) -> None:
    often = KeepaliveSettings(time_ms=1000, permit_without_calls=True)
    async with served(replace(local, keepalive=often)) as server, other_client(server) as idle:
        await idle.call("ServerLive")
        first = (await server.sockets())[-1].data.keep_alives_sent
        await until(server, lambda sockets: sockets[-1].data.keep_alives_sent > first)
