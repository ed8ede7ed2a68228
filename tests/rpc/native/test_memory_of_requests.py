"""Requests share a quota of memory: who has begun to send waits, and others are served."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.events
import h2.exceptions
import numpy as np
import pytest

from harness.raw_clients import hang_up
from hosting.puppets import eventually
from penstock.core.exit_deadline import ExitDeadline
from penstock.http2.frames import Limits
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import Method, Reply, RpcContext, Service
from penstock.rpc.native.transport import open_native
from penstock.system.body_room import BodyRoom
from rpc.native.wire import LOCAL, head

MIB = 1 << 20
SIZE = 8 * MIB
PART = 100_000


class Sizes:
    """Methods that return the lengths of messages."""

    def service(self) -> Service:
        kinds = pb.ModelInferRequest, pb.ModelInferResponse
        return Service(
            "s",
            [
                Method("unary", *kinds, self.unary, parse=len, unbounded=True, eager=True),
                Method("stream", *kinds, self.stream, True, True, parse=len, unbounded=True),
                Method("control", *kinds, self.unary, parse=len),
            ],
        )

    async def unary(self, size: int, _: RpcContext) -> Reply:
        return str(size).encode()

    async def stream(self, sizes: AsyncIterator[int], context: RpcContext) -> None:
        async for size in sizes:
            await context.write(str(size).encode())


class Peer:
    """A client by frames; `credit` are the streams whose windows were widened, `status` the ends
    of calls, `answers` their data."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.credit: list[int] = []
        self.status: dict[int, str] = {}
        self.answers: dict[int, bytes] = {}
        self._writer = writer
        self._unsent: dict[int, bytearray] = {}
        self._ending: set[int] = set()
        self.client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.client.initiate_connection()

    def begin(
        self,
        method: str,
        size: int = PART,
        announced: int = SIZE,
        fields: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        """A call of which so many bytes of a message are sent; its stream."""
        stream = self.client.get_next_available_stream_id()
        self.client.send_headers(stream, [*head(f"/s/{method}"), *fields.items()])
        self.go_on(stream, b"\0" + announced.to_bytes(4, "big") + bytes(size))
        return stream

    def go_on(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send more of a call, as far and as soon as its windows allow."""
        self._unsent.setdefault(stream, bytearray()).extend(data)
        if end:
            self._ending.add(stream)
        self.flush()

    def _send(self) -> None:
        for stream, data in list(self._unsent.items()):
            with suppress(h2.exceptions.StreamClosedError):
                while data and (room := self.client.local_flow_control_window(stream)):
                    part = bytes(data[: min(room, 16_384)])
                    del data[: len(part)]
                    last = not data and stream in self._ending
                    self.client.send_data(stream, part, end_stream=last)
            if not data:
                del self._unsent[stream]

    def reset(self, stream: int) -> None:
        self.client.reset_stream(stream)
        self.flush()

    def flush(self) -> None:
        self._send()
        self._writer.write(self.client.data_to_send())

    async def hear(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(1 << 16):
            for event in self.client.receive_data(data):
                self._heard(event)
            self.flush()

    def _heard(self, event: Any) -> None:
        if isinstance(event, h2.events.WindowUpdated) and event.stream_id:
            self.credit.append(event.stream_id)
        elif isinstance(event, h2.events.DataReceived):
            self.answers[event.stream_id] = self.answers.get(event.stream_id, b"") + event.data
        for name, value in getattr(event, "headers", None) or ():
            if name == b"grpc-status":
                self.status[event.stream_id] = value.decode()


@asynccontextmanager
async def peer(port: int) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    one = Peer(writer)
    one.flush()
    hearing = asyncio.create_task(one.hear(reader))
    try:
        yield one
    finally:
        hearing.cancel()
        await hang_up(writer)


@asynccontextmanager
async def serving(room: BodyRoom, grace: float = 1.0) -> AsyncIterator[int]:
    services, deadline = [Sizes().service()], ExitDeadline(grace)
    async with open_native(services, LOCAL, deadline, Limits(), bodies=room) as port:
        yield port


def filled(room: BodyRoom) -> memoryview:
    """Memory that uses the room up while it is kept."""
    memory = np.empty(8, np.uint8).data
    room.quota.open(memory, room.quota.most)
    return memory


@pytest.mark.parametrize("method", ["unary", "stream"])
@pytest.mark.parametrize("end", ["reset", "connection", "deadline", "refused"])
async def test_no_byte_is_counted_once_a_call_has_ended(method: str, end: str) -> None:
    room = BodyRoom(64 * MIB)
    async with serving(room) as port:
        async with peer(port) as client:
            late = {"grpc-timeout": "400m"} if end == "deadline" else {}
            stream = client.begin(method, fields=late)
            await eventually(lambda: room.quota.used == PART or stream in client.status)
            if end == "reset":
                client.reset(stream)
            elif end == "refused":
                client.go_on(stream, bytes(SIZE - PART) + b"\0" + bytes([255] * 4))
            if end != "connection":
                await eventually(lambda: room.quota.used == 0)
        await eventually(lambda: room.quota.used == 0)


@pytest.mark.parametrize("packed", [False, True])
async def test_no_byte_is_counted_once_a_call_is_answered(packed: bool) -> None:
    room = BodyRoom(64 * MIB)
    compression = grpc.Compression.Gzip if packed else grpc.Compression.NoCompression
    async with (
        serving(room) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", compression=compression) as channel,
    ):
        unary: Any = channel.unary_unary("/s/unary", bytes, bytes)
        stream: Any = channel.stream_stream("/s/stream", bytes, bytes)
        assert await unary(bytes(SIZE)) == str(SIZE).encode()
        sent = [bytes(SIZE), b"x", bytes(SIZE)]
        assert [int(size) async for size in stream(iter(sent))] == [SIZE, 1, SIZE]
        await eventually(lambda: room.quota.used == 0)


async def test_packed_message_that_unpacks_to_nothing_is_served() -> None:
    """Its name makes it large."""
    packed = gzip.compress(b"")
    named = packed[:3] + b"\x08" + packed[4:10] + b"n" * 300_000 + b"\0" + packed[10:]
    async with serving(BodyRoom(64 * MIB)) as port, peer(port) as client:
        stream = client.client.get_next_available_stream_id()
        client.client.send_headers(stream, [*head("/s/unary"), ("grpc-encoding", "gzip")])
        client.go_on(stream, b"\1" + len(named).to_bytes(4, "big") + named, end=True)
        await eventually(lambda: stream in client.status)
        assert (client.status[stream], client.answers[stream][5:]) == ("0", b"0")


@pytest.mark.parametrize("method", ["unary", "stream"])
async def test_credit_is_returned_once_there_is_memory_again(method: str) -> None:
    room = BodyRoom(MIB)
    async with serving(room) as port, peer(port) as client:
        used = filled(room)
        stream = client.begin(method, 4 * MIB - 20_000)
        assert await _small(port) == b"1"
        await eventually(lambda: room.quota.used > 4 * MIB)
        assert client.credit == []
        del used
        room.quota.most = 64 * MIB
        held = filled(room)
        del held
        await eventually(lambda: client.credit == [stream])
        client.go_on(stream, bytes(4 * MIB))
        await eventually(lambda: len(client.credit) > 1)


async def _small(port: int) -> bytes:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        answer: bytes = await channel.unary_unary("/s/unary", bytes, bytes)(b"x")
        return answer


async def test_small_calls_of_the_same_connection_are_answered_meanwhile() -> None:
    room = BodyRoom(MIB)
    async with serving(room) as port, peer(port) as client:
        used = filled(room)
        for _ in range(5):  # more than a connection's window holds
            client.begin("unary", 4 * MIB - 20_000)
        small = client.client.get_next_available_stream_id()
        client.client.send_headers(small, head("/s/unary"))
        client.go_on(small, b"\0\0\0\0\1x", end=True)
        await eventually(lambda: client.status.get(small) == "0")
        del used


async def test_eldest_request_is_refused_after_a_while() -> None:
    room = BodyRoom(MIB, patience=0.02)
    async with serving(room) as port, peer(port) as client:
        old = client.begin("unary", MIB)
        await eventually(lambda: room.quota.used >= MIB)
        young = client.begin("stream", PART, announced=2 * PART)
        await eventually(lambda: old in client.status)
        client.go_on(young, bytes(PART), end=True)
        await eventually(lambda: young in client.status)
        assert client.status == {old: "8", young: "0"}
        await eventually(lambda: room.quota.used == 0)


async def test_packed_request_that_waits_for_memory_may_be_the_one() -> None:
    """Else those who are complete, and wait to be unpacked, would wait for each other."""
    room = BodyRoom(PART, patience=0.02)
    noise = np.random.default_rng(1).bytes(MIB)
    packed = gzip.compress(noise)
    async with serving(room) as port, peer(port) as client:
        streams = []
        for _ in range(2):
            stream = client.client.get_next_available_stream_id()
            streams.append(stream)
            client.client.send_headers(stream, [*head("/s/unary"), ("grpc-encoding", "gzip")])
            client.go_on(stream, b"\1" + len(packed).to_bytes(4, "big") + packed, end=True)
        await eventually(lambda: len(client.status) == 2)
        assert client.status[streams[0]] == "8"
        await eventually(lambda: room.quota.used == 0)


async def test_connection_is_read_no_more_far_beyond_and_goes_on_then() -> None:
    room = BodyRoom(MIB)
    async with serving(room) as port, peer(port) as client:
        memory = np.empty(8, np.uint8).data
        room.quota.open(memory, 40 * MIB)
        stream = client.begin("unary", PART, announced=4 * PART)
        await eventually(lambda: room.quota.used > 40 * MIB)
        small = client.client.get_next_available_stream_id()
        client.client.send_headers(small, head("/s/unary"))
        client.go_on(small, b"\0\0\0\0\1x", end=True)
        assert await _small(port) == b"1"
        assert client.status == {}
        del memory
        client.go_on(stream, bytes(3 * PART), end=True)
        await eventually(lambda: client.status == {small: "0", stream: "0"})


@pytest.mark.parametrize("packed", [False, True])
async def test_server_that_ends_leaves_nobody_waiting(packed: bool) -> None:
    room = BodyRoom(MIB)
    used = filled(room)
    async with serving(room, grace=0.0) as port, peer(port) as client:
        if packed:
            stream = client.client.get_next_available_stream_id()
            client.client.send_headers(stream, [*head("/s/unary"), ("grpc-encoding", "gzip")])
            data = gzip.compress(bytes(MIB))
            client.go_on(stream, b"\1" + len(data).to_bytes(4, "big") + data, end=True)
        else:
            client.begin("stream")
        assert await _small(port) == b"1"
    assert room.quota.used in (MIB, MIB + PART)
    await eventually(lambda: room.quota.used == MIB)
    assert room._waiting == {}
    del used


async def test_message_may_unpack_to_64_times_its_size() -> None:
    limits = Limits(small_inflated_size=MIB, max_inflation=64)
    services = [Sizes().service()]
    async with (
        open_native(services, LOCAL, ExitDeadline(1), limits) as port,
        grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", compression=grpc.Compression.Gzip
        ) as channel,
    ):
        unary: Any = channel.unary_unary("/s/unary", bytes, bytes)
        assert await unary(bytes(MIB)) == str(MIB).encode()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await unary(bytes(MIB + 1))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused.value.details() == f"message unpacks to more than {MIB} bytes"
        noise = np.random.default_rng(1).bytes(40_000)
        assert await unary(noise + bytes(MIB)) == str(40_000 + MIB).encode()


async def test_packed_message_without_tensors_has_the_limit_of_these() -> None:
    async with (
        serving(BodyRoom(64 * MIB)) as port,
        grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", compression=grpc.Compression.Gzip
        ) as channel,
    ):
        control: Any = channel.unary_unary("/s/control", bytes, bytes)
        assert await control(bytes(MIB)) == str(MIB).encode()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await control(bytes(MIB + 1))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
