"""Replies for code on an event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.core.window import WINDOW
from penstock_backends.python.replies import PendingReply, Terms
from penstock_backends.python.values import InferenceResponse


class Server:
    """The stub, as far as a reply needs it."""

    def wait(self, _: object) -> None:
        raise AssertionError("this would block")

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@pytest.fixture
def reply() -> PendingReply:
    server: Any = Server()
    return PendingReply(server, 1, ("OUT",), Terms(decoupled=True))


async def test_room_comes_with_the_reader(reply: PendingReply) -> None:
    for _ in range(WINDOW.responses):
        await reply.room()
        reply.send(InferenceResponse([]), final=False)
    waiting = asyncio.create_task(reply.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await asyncio.to_thread(reply.taken, 1)  # any thread may read the link
    async with asyncio.timeout(5):
        await waiting


def test_the_last_response_needs_no_room(reply: PendingReply) -> None:
    for _ in range(WINDOW.responses):
        reply.send(InferenceResponse([]), final=False)
    reply.send(InferenceResponse([]), final=True)
    assert reply.closed


async def test_leaving_ends_the_wait_for_room(reply: PendingReply) -> None:
    for _ in range(WINDOW.responses):
        reply.send(InferenceResponse([]), final=False)
    waiting = asyncio.create_task(reply.room())
    await asyncio.sleep(0)
    reply.cancel()
    async with asyncio.timeout(5):
        await waiting


@pytest.mark.parametrize("early", [True, False])
async def test_leaving_is_told_whenever_it_happens(reply: PendingReply, early: bool) -> None:
    told = asyncio.Event()
    if early:
        reply.cancel()
    reply.on_cancel(told.set)
    if not early:
        await asyncio.to_thread(reply.cancel)
    async with asyncio.timeout(5):
        await told.wait()
