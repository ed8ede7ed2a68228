"""Replies: flow control, cancellation, threads and event loops."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest

from penstock.core.flow_control import WINDOW, Window
from penstock.core.request import InferenceResponse as CoreResponse
from penstock.hosting.link.messages import Kind
from penstock_backends.python.pb_utils.responses import InferenceResponse
from penstock_backends.python.pb_utils.tensor import Tensor
from penstock_backends.python.process.replies import PendingReply, ReplyPolicy


class Server:
    """The link, as far as a reply needs it."""

    def wait(self, _: object) -> None:
        raise AssertionError("this would block")

    def in_reading_loop(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def pending_reply(link: Any, policy: ReplyPolicy) -> PendingReply:
    return PendingReply(link, 1, ("OUT",), policy, lambda _: None)


@pytest.fixture
def reply() -> PendingReply:
    server: Any = Server()
    return pending_reply(server, ReplyPolicy(decoupled=True))


async def test_credit_comes_with_the_reader(reply: PendingReply) -> None:
    for _ in range(WINDOW.responses):
        await reply.wait_for_room()
        reply.send(InferenceResponse([]), final=False)
    waiting = asyncio.create_task(reply.wait_for_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await asyncio.to_thread(reply.acknowledge, 1)  # any thread may read the link
    async with asyncio.timeout(20):
        await waiting


@pytest.mark.parametrize("window", [Window(1), Window(3), Window(40), Window(40, size=1)])
async def test_window_is_that_of_the_model(window: Window) -> None:
    server: Any = Server()
    reply = pending_reply(server, ReplyPolicy.from_config({}, (window.responses, window.size)))
    output = Tensor("OUT", np.ones(1, np.float32))
    fitting = window.responses if window.size > 1 else 1
    async with asyncio.timeout(20):
        for _ in range(fitting):
            await reply.wait_for_room()
            reply.send(InferenceResponse([output]), final=False)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await reply.wait_for_room()


def test_the_last_response_needs_no_room(reply: PendingReply) -> None:
    for _ in range(WINDOW.responses):
        reply.send(InferenceResponse([]), final=False)
    reply.send(InferenceResponse([]), final=True)
    assert reply.closed


class LoopServer(Server):
    """The link, seen from the event loop that serves the model."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def in_reading_loop(self) -> bool:
        return True

    def send_response(self, _: int, response: Any, __: Any) -> None:
        self.sent.append(response)

    def send(self, kind: Any, _: Any) -> None:
        self.sent.append(kind)


def test_an_event_loop_does_not_wait_for_a_slow_reader() -> None:
    server: Any = LoopServer()
    reply = pending_reply(server, ReplyPolicy(decoupled=True))
    for _ in range(WINDOW.responses + 5):
        reply.send(InferenceResponse([]), final=False)
    reply.send(None, final=True)
    assert len(server.sent) == WINDOW.responses
    reply.acknowledge(3)
    assert len(server.sent) == WINDOW.responses + 3
    reply.acknowledge(9)
    assert len(server.sent) == WINDOW.responses + 6
    assert server.sent[-1] is Kind.END


def test_cancellation_discards_responses_that_an_event_loop_holds() -> None:
    server: Any = LoopServer()
    reply = pending_reply(server, ReplyPolicy(decoupled=True))
    for _ in range(WINDOW.responses + 5):
        reply.send(InferenceResponse([]), final=False)
    reply.cancel()
    reply.acknowledge(16)
    assert len(server.sent) == WINDOW.responses


async def test_cancellation_ends_the_wait_for_room(reply: PendingReply) -> None:
    for _ in range(WINDOW.responses):
        reply.send(InferenceResponse([]), final=False)
    waiting = asyncio.create_task(reply.wait_for_room())
    await asyncio.sleep(0)
    reply.cancel()
    async with asyncio.timeout(20):
        await waiting


@pytest.mark.parametrize("early", [True, False])
async def test_cancellation_calls_back_whenever_it_happens(
    reply: PendingReply, early: bool
) -> None:
    told = asyncio.Event()
    if early:
        reply.cancel()
    reply.on_cancel(told.set)
    if not early:
        await asyncio.to_thread(reply.cancel)
    async with asyncio.timeout(20):
        await told.wait()


# -- several threads ------------------------------------------------------------------------------


def until_counted(reply: PendingReply) -> None:
    """Until the reading thread has counted all that was taken."""
    while reply._credit._sizes:
        time.sleep(0.001)


def test_response_may_be_taken_before_sending_it_has_returned() -> None:
    server: Any = Server()
    reply = pending_reply(server, ReplyPolicy(decoupled=True))
    sent = []

    def respond(*_: object) -> None:
        sent.append(True)
        reader = threading.Thread(target=reply.acknowledge, args=(1,))
        reader.start()
        until_counted(reply)
        readers.append(reader)

    readers: list[threading.Thread] = []
    server.send_response = respond
    for _ in range(3 * WINDOW.responses):
        reply.send(InferenceResponse([]), final=False)
    assert len(sent) == 3 * WINDOW.responses
    for reader in readers:
        reader.join(5)
    assert not reply._credit._sizes  # all of them were taken


def test_response_that_is_held_just_after_the_others_were_taken_is_sent() -> None:
    server = LoopServer()
    anyone: Any = server
    reply = pending_reply(anyone, ReplyPolicy(decoupled=True))
    for _ in range(WINDOW.responses):
        reply.send(InferenceResponse([]), final=False)
    with reply._lock:  # a sender has seen that there is no room, and is about to hold its response
        reader = threading.Thread(target=reply.acknowledge, args=(WINDOW.responses,))
        reader.start()
        until_counted(reply)
        reply._held.append(CoreResponse())
    reader.join(5)
    assert not reply._held
