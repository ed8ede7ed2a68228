"""Calls of which one client sends many, or many or large messages: others are served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import h2.config
import h2.connection
import h2.events

from gateway.connections.wire import Transport
from harness.raw_clients import hang_up
from penstock.core.exit_deadline import ExitDeadline
from penstock.http2.frame_parser import MOST_FRAMES
from penstock.http2.frames import Limits
from penstock.http2.grpc import MOST_AT_ONCE
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import Method, Reply, RpcContext, Service
from penstock.rpc.native.connection import ConnectionProtocol
from penstock.rpc.native.routes import Routes
from penstock.rpc.native.server_state import ServerState
from penstock.rpc.native.transport import open_native
from penstock.settings import CompressionLevel, KeepaliveSettings
from rpc.native.wire import LOCAL, PATIENCE, Handlers, exchange, head, until, wire

_MANY = 8 * MOST_AT_ONCE
_EMPTY = bytes(5)


class _Transport(Transport):
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Counting:
    """A stream whose messages are counted."""

    def __init__(self) -> None:
        self.taken = 0

    def service(self) -> Service:
        kinds = pb.ModelInferRequest, pb.ModelInferResponse
        return Service("s", [Method("count", *kinds, self.count, client_streaming=True)])

    async def count(self, requests: AsyncIterator[Any], _: RpcContext) -> Reply:
        async for _ in requests:
            self.taken += 1
        return pb.ModelInferResponse()


def _client() -> h2.connection.H2Connection:
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    return client


async def test_unary_call_ends_at_its_second_message() -> None:
    """Whatever the client goes on to send."""
    async with open_native([Handlers().service()], LOCAL, ExitDeadline(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = _client()
        client.send_headers(1, head("/s/echo"))
        client.send_data(1, _EMPTY * 2)
        answer = await until(client, reader, writer, h2.events.ResponseReceived)
        fields = dict(answer.headers)
        assert fields[b"grpc-status"] == b"13"
        assert fields[b"grpc-message"] == b"expected one request message, got 2"
        await hang_up(writer)


async def test_messages_of_a_stream_leave_the_loop_to_others() -> None:
    handlers = Counting()
    async with open_native([handlers.service()], LOCAL, ExitDeadline(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = _client()
        await exchange(client, reader, writer)
        client.send_headers(1, head("/s/count"))
        client.send_data(1, _EMPTY * _MANY, end_stream=True)
        writer.write(client.data_to_send())
        seen = [0]
        async with asyncio.timeout(PATIENCE):
            while handlers.taken < _MANY:
                await asyncio.sleep(0)
                seen.append(handlers.taken)
        assert max(after - before for before, after in pairwise(seen)) <= 101
        await hang_up(writer)


async def test_calls_of_one_read_leave_the_loop_to_others() -> None:
    handlers = Handlers()
    async with (
        open_native([handlers.service()], LOCAL, ExitDeadline(0)) as port,
        wire(port, handlers) as client,
    ):
        client.begin(1000, "/s/linger")
        await client.until(lambda: True)
        seen = [0]
        async with asyncio.timeout(PATIENCE):
            while handlers.begun < 1000:
                await asyncio.sleep(0)
                seen.append(handlers.begun)
        assert max(after - before for before, after in pairwise(seen)) <= MOST_FRAMES // 2


def _deliver(protocol: ConnectionProtocol, data: bytes) -> None:
    """Deliver bytes as a transport does whose socket is always full."""
    while data:
        memory = protocol.get_buffer(-1)
        size = min(len(memory), len(data))
        memory[:size] = data[:size]
        data = data[size:]
        protocol.buffer_updated(size)


async def test_large_messages_are_read_in_turns_however_fast_they_come() -> None:
    state = ServerState(Limits(), KeepaliveSettings(), CompressionLevel.NONE)
    protocol = ConnectionProtocol(state, Routes([Handlers().service()]).read)
    transport, client = _Transport(), _client()
    protocol.connection_made(transport)
    _deliver(protocol, client.data_to_send())
    client.receive_data(transport.written)
    for stream in (1, 3):
        client.send_headers(stream, head("/s/echo"))
        for _ in range(3):
            client.send_data(stream, (b"\0\0\x40\0\0" + bytes(1 << 20))[: 1 << 20])
    _deliver(protocol, client.data_to_send())
    reads = [transport.reading]
    await asyncio.sleep(0)
    assert [*reads, transport.reading] == [False, True]
    protocol.connection_lost(None)
