"""Bodies share a quota of memory: who has begun to send waits, and others are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from gateway.serving import LOCAL, FakeServer
from harness.raw_clients import hang_up
from hosting.puppets import eventually
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.gateway.app import open_gateway
from penstock.gateway.connections.open_connections import ConnectionRules
from penstock.system.body_room import BodyRoom

MIB = 1 << 20
SIZE = 6 * MIB
JSON = (
    b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[%d],'
    b'"parameters":{"binary_data_size":%d}}]}'
)
DECLARED = b"content-length: %d"
CHUNKED = b"transfer-encoding: chunked"


class Forgetful(FakeServer):
    """Keeps no request."""

    def answer(self, request: InferenceRequest, stream: ResponseStream) -> None:
        self.requests.clear()
        super().answer(request, stream)


class Sender:
    """A client that sends a request by and by."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer
        self._chunked = False

    def begin(self, *, chunked: bool = False, path: str = "/v2/models/numbers/infer") -> None:
        """The head of a request with a binary tensor, and its JSON."""
        json = JSON % (SIZE // 4, SIZE)
        self._chunked = chunked
        framing = CHUNKED if chunked else DECLARED % (len(json) + SIZE)
        length = b"inference-header-content-length: %d" % len(json)
        lines = b"POST %b HTTP/1.1" % path.encode(), b"host: x", length, framing, b"", b""
        self._writer.write(b"\r\n".join(lines))
        self.send(json)

    def send(self, data: bytes) -> None:
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._writer.write(data)

    def end(self) -> None:
        if self._chunked:
            self._writer.write(b"0\r\n\r\n")

    def leave(self) -> None:
        self._writer.transport.abort()

    async def status(self) -> int:
        line = await asyncio.wait_for(self.reader.readuntil(b"\r\n"), 20)
        return int(line.split()[1])


@asynccontextmanager
async def serving(room: BodyRoom, grace: float = 1.0) -> AsyncIterator[int]:
    rules = ConnectionRules(bodies=room)
    async with open_gateway(Forgetful(), LOCAL, ExitDeadline(grace), rules) as port:
        yield port


@asynccontextmanager
async def sender(port: int) -> AsyncIterator[Sender]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Sender(reader, writer)
    finally:
        await hang_up(writer)


async def live(port: int) -> int:
    """The status of a request without a body, on a connection of its own."""
    async with sender(port) as client:
        client._writer.write(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        return await client.status()


def filled(room: BodyRoom) -> memoryview:
    """Memory that uses the room up while it is kept."""
    memory = np.empty(8, np.uint8).data
    room.quota.open(memory, room.quota.most)
    return memory


@pytest.mark.parametrize("chunked", [False, True])
async def test_no_byte_is_counted_once_a_body_is_answered(chunked: bool) -> None:
    room = BodyRoom(64 * MIB)
    async with serving(room) as port, sender(port) as client:
        client.begin(chunked=chunked)
        client.send(bytes(MIB))
        await eventually(lambda: room.quota.used > MIB)
        client.send(bytes(SIZE - MIB))
        client.end()
        assert await client.status() == 200
        await client.reader.readexactly(SIZE)
        await eventually(lambda: room.quota.used == 0)


@pytest.mark.parametrize("chunked", [False, True])
async def test_no_byte_is_counted_once_its_client_has_gone(chunked: bool) -> None:
    room = BodyRoom(64 * MIB)
    async with serving(room) as port, sender(port) as client:
        client.begin(chunked=chunked)
        client.send(bytes(MIB))
        await eventually(lambda: room.quota.used > MIB)
        client.leave()
        await eventually(lambda: room.quota.used == 0)


@pytest.mark.parametrize("chunked", [False, True])
async def test_body_of_a_refused_request_is_not_counted(chunked: bool) -> None:
    """It is read to its end, and forgotten, even where memory is used up."""
    room = BodyRoom(MIB)
    async with serving(room) as port, sender(port) as client:
        used = filled(room)
        client.begin(chunked=chunked, path="/v2/unknown")
        client.send(bytes(SIZE))
        client.end()
        assert await client.status() == 404
        await eventually(lambda: room.quota.used == MIB)
        del used


@pytest.mark.parametrize("chunked", [False, True])
async def test_body_is_read_on_once_there_is_memory_again(chunked: bool) -> None:
    room = BodyRoom(16 * MIB)
    async with serving(room) as port, sender(port) as client:
        used = filled(room)
        client.begin(chunked=chunked)
        client.send(bytes(SIZE))
        client.end()
        assert await live(port) == 200
        assert room.quota.used < 16 * MIB + SIZE
        del used
        assert await client.status() == 200


async def test_eldest_body_is_refused_after_a_while() -> None:
    room = BodyRoom(2 * MIB, patience=0.02)
    async with serving(room) as port, sender(port) as old, sender(port) as young:
        old.begin()
        old.send(bytes(2 * MIB))
        await eventually(lambda: room.quota.exhausted)
        young.begin()
        young.send(bytes(MIB))
        assert await old.status() == 408
        assert await live(port) == 200


@pytest.mark.parametrize("chunked", [False, True])
async def test_server_that_ends_leaves_nobody_waiting(chunked: bool) -> None:
    room = BodyRoom(MIB)
    used = filled(room)
    async with serving(room, grace=0.0) as port, sender(port) as client:
        client.begin(chunked=chunked)
        client.send(bytes(MIB))
        assert await live(port) == 200
    await eventually(lambda: room.quota.used == MIB)
    assert room._waiting == {}
    del used
