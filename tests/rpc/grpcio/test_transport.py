"""Calls of `GrpcioContext` to the servicer context of grpc: one at a time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from penstock.rpc.grpcio.transport import GrpcioContext


class Servicer:
    """A servicer context whose client reads a message on request."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.sent: list[bytes] = []
        self.takes = asyncio.Event()

    async def write(self, message: bytes) -> None:
        self.begun.append(message)
        await self.takes.wait()
        self.sent.append(message)


@pytest.fixture
def servicer() -> Servicer:
    return Servicer()


@pytest.fixture
def context(servicer: Servicer) -> GrpcioContext:
    return GrpcioContext(cast(Any, servicer))


async def begun(coroutine: Any) -> asyncio.Task[None]:
    """A task that has gone as far as it can."""
    task: asyncio.Task[None] = asyncio.ensure_future(coroutine)
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def test_write_returns_when_the_message_is_taken(
    servicer: Servicer, context: GrpcioContext
) -> None:
    writing = await begun(context.write(b"a"))
    assert not writing.done()
    servicer.takes.set()
    await writing
    assert servicer.sent == [b"a"]


async def test_status_waits_for_a_message_whose_writer_was_cancelled(
    servicer: Servicer, context: GrpcioContext
) -> None:
    """As when a stream ends with an error while another task writes to it."""
    writing = await begun(context.write(b"a"))
    writing.cancel()
    flushing = await begun(context.flush())
    assert writing.cancelled()
    assert not flushing.done()
    servicer.takes.set()
    await flushing
    assert servicer.sent == [b"a"]


async def test_messages_are_sent_one_at_a_time_and_in_order(
    servicer: Servicer, context: GrpcioContext
) -> None:
    context.write_nowait(b"a")
    writing = await begun(context.write(b"b"))
    assert servicer.begun == [b"a"]
    servicer.takes.set()
    await writing
    assert servicer.sent == [b"a", b"b"]


async def test_end_of_the_method_ends_its_writing(
    servicer: Servicer, context: GrpcioContext
) -> None:
    writing = await begun(context.write(b"a"))
    context.close()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(writing, 60)
    servicer.takes.set()
    assert servicer.sent == []
