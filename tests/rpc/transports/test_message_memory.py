"""Large requests over the native transport lie in buffers of their own, released after use.

Clients that leave amid a message, by a reset or with their connection, leave nothing behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import h2.config
import h2.connection
import numpy as np
import pytest

from harness.raw_clients import hang_up
from hosting.puppets import eventually
from penstock.core.exit_deadline import ExitDeadline
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import Method, Reply, RpcContext, Service
from penstock.rpc.native.transport import open_native
from penstock.settings import GrpcSettings
from penstock.shared_memory.message_memory import MessageMemory

_LOCAL = GrpcSettings(address="127.0.0.1", port=0)
_SIZE = 1 << 20


class Echo:
    """Answers with the tensors of requests, which are in `memory`."""

    def __init__(self) -> None:
        self.memory = MessageMemory()
        self.most = 0
        self.addresses = set[int]()

    def service(self) -> Service:
        kinds = bytes, bytes
        methods: Any = [
            Method(
                "unary", *kinds, self.unary, parse=_as_it_is, reserve=self.reserve, unbounded=True
            ),
            Method(
                "stream",
                *kinds,
                self.stream,
                client_streaming=True,
                server_streaming=True,
                parse=_as_it_is,
                reserve=self.reserve,
                unbounded=True,
            ),
        ]
        return Service("s", methods)

    def reserve(self, size: int, _: memoryview) -> memoryview | None:
        memory = self.memory.reserve(size, 0)
        self.most = max(self.most, self.memory.used)
        return memory

    async def unary(self, request: Any, _: RpcContext) -> Reply:
        self.addresses.add(np.frombuffer(request, np.uint8).ctypes.data)
        return [request]

    async def stream(self, requests: AsyncIterator[Any], context: RpcContext) -> None:
        async for request in requests:
            await context.write([request])


def _as_it_is(data: Any) -> Any:
    return data


@asynccontextmanager
async def raw_client(port: int) -> AsyncIterator[tuple[Any, asyncio.StreamWriter]]:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    yield client, writer
    await hang_up(writer)


def _begin(client: Any, path: str) -> int:
    """A call whose client has sent a part of its message."""
    stream: int = client.get_next_available_stream_id()
    head = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", path)]
    client.send_headers(stream, [*head, ("te", "trailers"), ("content-type", "application/grpc")])
    client.send_data(stream, b"\0" + _SIZE.to_bytes(4, "big") + bytes(3000))
    return stream


@pytest.mark.parametrize("method", ["unary", "stream"])
@pytest.mark.parametrize("how", ["reset", "connection"])
async def test_client_that_leaves_amid_its_message_leaves_nothing(method: str, how: str) -> None:
    echo = Echo()
    async with open_native([echo.service()], _LOCAL, ExitDeadline(0)) as port:
        async with raw_client(port) as (client, writer):
            streams = [_begin(client, f"/s/{method}") for _ in range(10)]
            writer.write(client.data_to_send())
            await eventually(lambda: echo.memory.used == 10)
            if how == "reset":
                for stream in streams:
                    client.reset_stream(stream)
                writer.write(client.data_to_send())
                await eventually(lambda: echo.memory.used == 0)
        await eventually(lambda: echo.memory.used == 0)


@pytest.mark.parametrize("size", [100, 40_000, _SIZE, 5 << 20])
async def test_messages_arrive_intact_and_leave_nothing_behind(size: int) -> None:
    echo = Echo()
    sent = [bytes([number]) * size for number in range(1, 9)]
    options = [("grpc.max_receive_message_length", -1)]
    async with (
        open_native([echo.service()], _LOCAL, ExitDeadline(0)) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel,
    ):
        unary: Any = channel.unary_unary("/s/unary", bytes, bytes)
        assert await asyncio.gather(*map(unary, sent)) == sent
        assert (echo.most > 0) == (size > 100)
        stream: Any = channel.stream_stream("/s/stream", bytes, bytes)
        assert [got async for got in stream(iter(sent))] == sent
        await eventually(lambda: echo.memory.used == 0)


async def test_memory_is_reused_hot() -> None:
    """A block or two do for requests that follow each other."""
    echo = Echo()
    async with (
        open_native([echo.service()], _LOCAL, ExitDeadline(0)) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        unary: Any = channel.unary_unary("/s/unary", bytes, bytes)
        for _ in range(20):
            await unary(pb.ModelInferRequest(raw_input_contents=[bytes(_SIZE)]).SerializeToString())
        assert len(echo.addresses) <= 2  # one may still be written to the client
