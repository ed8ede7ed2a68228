"""Large compressed messages on the native transport: they delay no others, and keep order."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import grpc
import pytest

from penstock.core.buffer import Buffer
from penstock.core.errors import NotFoundError
from penstock.core.exit_deadline import ExitDeadline
from penstock.http2 import grpc as messages
from penstock.http2.frames import Limits
from penstock.http2.grpc import Work
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import Method, Reply, RpcContext, Service
from penstock.rpc.native.server_state import Workers
from penstock.rpc.native.transport import open_native
from penstock.settings import CompressionLevel, GrpcSettings

LOCAL = GrpcSettings(address="127.0.0.1", port=0)
COMPRESSING = replace(LOCAL, response_compression=CompressionLevel.MEDIUM)
PATIENCE = 60.0
MIB = 1 << 20
PARTS = [bytes(range(256)) * 4096] * 64
"""64 MiB of a response, whose compression takes some tenths of a second."""


class Handlers:
    """Methods that return the length of messages, or large responses. `asked` are the requests."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.begun = asyncio.Event()

    def service(self) -> Service:
        kinds = pb.ModelInferRequest, pb.ModelInferResponse
        return Service(
            "s",
            [
                Method("size", *kinds, self.size, parse=len, eager=True, unbounded=True),
                Method("large", *kinds, self.large, parse=len, eager=True),
                Method("sizes", *kinds, self.sizes, True, True, parse=len, unbounded=True),
                Method("mixed", *kinds, self.mixed, True, True, parse=len, unbounded=True),
                Method("refusing", *kinds, self.refusing, True, True, parse=len, unbounded=True),
            ],
        )

    async def size(self, size: int, _: RpcContext) -> Reply:
        self.asked.append(size)
        return str(size).encode()

    async def large(self, _: int, __: RpcContext) -> Reply:
        self.begun.set()
        return list(PARTS)

    async def sizes(self, requests: AsyncIterator[int], context: RpcContext) -> None:
        async for size in requests:
            await context.write(str(size).encode())

    async def mixed(self, _: AsyncIterator[int], context: RpcContext) -> None:
        """Large ones among small ones, and not all of them compressed."""
        for number in range(6):
            context.compress_responses(number != 2)
            context.write_nowait(bytes([number]) * (MIB if number % 2 else 1))
        context.add_trailing_metadata([("x-last", "1")])

    async def refusing(self, _: AsyncIterator[int], context: RpcContext) -> None:
        context.write_nowait(bytes(MIB))
        raise NotFoundError("enough")


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


class Held:
    """Work for threads, which has `come` and waits until it is `let_go`."""

    def __init__(self) -> None:
        self.come = asyncio.Event()
        self.let_go = asyncio.Event()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    held, do = Held(), Workers.run

    async def run(workers: Workers, work: Work) -> Buffer:
        held.come.set()
        await held.let_go.wait()
        return await do(workers, work)

    monkeypatch.setattr(Workers, "run", run)
    return held


def call(port: int, name: str, data: bytes = b"", **options: Any) -> bytes:
    """A unary call by a client on a thread of its own, so that it takes no time of the loop's."""
    unlimited = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=unlimited) as channel:
        multi = channel.unary_unary(f"/s/{name}", bytes, bytes)
        answer: bytes = multi(data, timeout=PATIENCE, **options)
        return answer


def talk(port: int, name: str, messages: list[bytes], **options: Any) -> list[bytes]:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        multi = channel.stream_stream(f"/s/{name}", bytes, bytes)
        return list(multi(iter(messages), timeout=PATIENCE, **options))


GZIP = {"compression": grpc.Compression.Gzip}


async def test_others_are_answered_while_a_message_is_unpacked(
    handlers: Handlers, held: Held
) -> None:
    async with open_native([handlers.service()], LOCAL, ExitDeadline(1)) as port:
        large = asyncio.to_thread(call, port, "size", bytes(32 * MIB), **GZIP)
        task = asyncio.ensure_future(large)
        await asyncio.wait_for(held.come.wait(), PATIENCE)
        await asyncio.to_thread(call, port, "size", b"xy")
        assert handlers.asked == [2]
        held.let_go.set()
        assert await task == str(32 * MIB).encode()


@pytest.mark.slow
async def test_others_are_answered_while_a_response_is_compressed(
    handlers: Handlers, held: Held
) -> None:
    async with open_native([handlers.service()], COMPRESSING, ExitDeadline(1)) as port:
        task = asyncio.ensure_future(asyncio.to_thread(call, port, "large"))
        await asyncio.wait_for(held.come.wait(), PATIENCE)
        assert await asyncio.to_thread(call, port, "size", b"xy") == b"2"
        assert not task.done()
        held.let_go.set()
        assert await task == b"".join(PARTS)


@pytest.mark.slow
async def test_requests_of_a_stream_keep_their_order(handlers: Handlers) -> None:
    messages = [bytes(32 * MIB), b"x", bytes(8 * MIB), b"xy", bytes(500)]
    async with open_native([handlers.service()], LOCAL, ExitDeadline(1)) as port:
        answers = await asyncio.to_thread(talk, port, "sizes", messages, **GZIP)
    assert answers == [str(len(message)).encode() for message in messages]


async def test_responses_of_a_stream_keep_their_order(handlers: Handlers) -> None:
    async with open_native([handlers.service()], COMPRESSING, ExitDeadline(1)) as port:
        answers = await asyncio.to_thread(talk, port, "mixed", [])
    assert [(answer[0], len(answer)) for answer in answers] == [
        (number, MIB if number % 2 else 1) for number in range(6)
    ]


async def test_error_is_sent_after_messages_being_compressed(handlers: Handlers) -> None:
    async with (
        open_native([handlers.service()], COMPRESSING, ExitDeadline(1)) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stream = channel.stream_stream("/s/refusing", bytes, bytes)(iter([]))
        assert len(cast(bytes, await stream.read())) == MIB
        assert await stream.code() is grpc.StatusCode.NOT_FOUND
        assert await stream.details() == "enough"


async def test_message_that_unpacks_to_too_much_is_refused(handlers: Handlers) -> None:
    limits = Limits(max_inflated_size=8 * MIB)
    async with open_native([handlers.service()], LOCAL, ExitDeadline(1), limits) as port:
        with pytest.raises(grpc.RpcError) as refused:
            await asyncio.to_thread(call, port, "size", bytes(9 * MIB), **GZIP)
        error: Any = refused.value
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.details() == "message unpacks to more than 8388608 bytes"
        assert await asyncio.to_thread(call, port, "size", bytes(8 * MIB), **GZIP) == b"8388608"


@pytest.mark.slow
async def test_decompressed_data_of_a_refused_message_is_released(handlers: Handlers) -> None:
    """At once, and not when the collector finds the error that ended the call."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        await test_message_that_unpacks_to_too_much_is_refused(handlers)
        made = tracemalloc.Filter(inclusive=True, filename_pattern=messages.__file__)
        traces = tracemalloc.take_snapshot().filter_traces([made]).traces
        assert sum(trace.size for trace in traces) < MIB
    finally:
        tracemalloc.stop()
        gc.enable()


async def test_client_that_leaves_stops_only_its_own_compression(handlers: Handlers) -> None:
    """More of them than may be worked on at a time."""
    async with (
        open_native([handlers.service()], COMPRESSING, ExitDeadline(1)) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        method = channel.unary_unary("/s/large", bytes, bytes)
        calls = [method(b"", compression=grpc.Compression.Gzip) for _ in range(8)]
        await asyncio.wait_for(handlers.begun.wait(), PATIENCE)
        for left in calls:
            left.cancel()
        assert await asyncio.to_thread(call, port, "size", bytes(4 * MIB), **GZIP) == b"4194304"


async def test_server_that_ends_stops_the_work(handlers: Handlers) -> None:
    async with open_native([handlers.service()], COMPRESSING, ExitDeadline(0)) as port:
        large = asyncio.ensure_future(asyncio.to_thread(call, port, "large"))
        await asyncio.wait_for(handlers.begun.wait(), PATIENCE)
    with pytest.raises(grpc.RpcError):
        await large
