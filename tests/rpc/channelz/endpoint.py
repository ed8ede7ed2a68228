"""An endpoint with channelz, and a client of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest

from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.protocol import channelz_pb2 as pb
from penstock.rpc.channelz.servicer import NAME
from penstock.rpc.server import open_grpc
from penstock.settings import GrpcSettings
from rpc.manual import PATIENCE, ManualServer
from rpc.serving import Client, channel_to


class Alive(ManualServer):
    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def live(self) -> bool:
        return True

    def infer(self, request: InferenceRequest) -> ResponseStream:
        self.asked.set()
        return super().infer(request)


async def ask(channel: grpc.aio.Channel, name: str, **fields: Any) -> Any:
    """One method of channelz, by its generated messages."""
    request, response = getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response")
    return await channel.unary_unary(
        f"/{NAME}/{name}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )(request(**fields))


class Server:
    """An endpoint with channelz, and a channel that asks."""

    def __init__(
        self, port: int, channel: grpc.aio.Channel, native: bool, facade: Alive | None = None
    ) -> None:
        self.facade = facade or Alive()
        self.port = port
        self.channel = channel
        self.native = native

    async def ask(self, name: str, **fields: Any) -> Any:
        return await ask(self.channel, name, **fields)

    async def itself(self) -> pb.Server:
        """With grpcio, other servers of this process are listed too: ours is the last."""
        last: pb.Server = (await self.ask("GetServers")).server[-1]
        return last

    async def sockets(self) -> list[pb.Socket]:
        """Of all connections, but those that end while they are asked for."""
        server = (await self.itself()).ref.server_id
        found = []
        for ref in (await self.ask("GetServerSockets", server_id=server)).socket_ref:
            try:
                found.append((await self.ask("GetSocket", socket_id=ref.socket_id)).socket)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
        return found

    async def status(self, name: str, **fields: Any) -> grpc.StatusCode:
        """Of a request that fails."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.ask(name, **fields)
        return caught.value.code()


@asynccontextmanager
async def served(settings: GrpcSettings) -> AsyncIterator[Server]:
    settings = replace(settings, channelz=True)
    facade = Alive()
    async with open_grpc(facade, settings, ExitDeadline(0)) as port, channel_to(port) as channel:
        yield Server(port, channel, settings.transport == "native", facade)


@asynccontextmanager
async def other_client(server: Server) -> AsyncIterator[Client]:
    """On a connection of its own."""
    await server.itself()  # so that the connection of who asks is the first
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options) as channel:
        yield Client(channel)


async def calm(server: Server) -> pb.ServerData:
    """The counters, when no other call is in flight."""
    async with asyncio.timeout(PATIENCE):
        while True:
            data = (await server.itself()).data
            if data.calls_started == data.calls_succeeded + data.calls_failed + 1:
                return data
            await asyncio.sleep(0.01)


async def until(
    server: Server, true: Callable[[list[pb.Socket]], bool], patience: float = PATIENCE
) -> list[pb.Socket]:
    """The connections, when something is true of them; nothing announces it."""
    end = time.monotonic() + patience
    while not true(sockets := await server.sockets()):
        assert time.monotonic() < end, "the condition did not come true in time"
        await asyncio.sleep(0.05)
    return sockets
