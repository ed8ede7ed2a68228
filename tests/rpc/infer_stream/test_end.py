"""The end of a `ModelStreamInfer` call: by its client, its deadline, or the server's shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.core.errors import DeadlineExceededError, UnavailableError
from penstock.rpc.infer_stream import InferStream
from penstock.rpc.messages import InferMessage
from rpc.infer_stream.talk import Talk
from rpc.manual import PATIENCE, Call, ManualServer, ask, number, numbers, received, turns

# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.contract("GP-20")
async def test_half_close_waits_for_the_answers(talk: Talk) -> None:
    await talk.say(ask("many", "a"), ask("once", "b"))
    talk.call.half_close()
    await turns()
    assert not talk.task.done()
    await talk.answer("a", number(1, final=True))
    await talk.answer("b", number(2, final=True))
    await asyncio.wait_for(talk.task, PATIENCE)
    assert numbers(talk.responses) == [("a", 1), ("b", 2)]


async def test_call_without_requests_ends(talk: Talk) -> None:
    await talk.end()
    assert talk.responses == []


@pytest.mark.contract("GP-22")
async def test_cancelled_call_cancels_every_request(talk: Talk) -> None:
    await talk.say(ask("many", "a"), ask("once", "b"), ask("once", "c"))
    talk.task.cancel()
    await asyncio.wait([talk.task])
    assert sorted(talk.server.closed) == ["a", "b", "c"]


async def test_request_admitted_just_before_the_cancellation_is_cancelled_too() -> None:
    """Its own task has not had its first step then."""
    server, call = ManualServer(), Call()

    async def requests() -> AsyncIterator[InferMessage]:
        yield received(ask("many", "a"))
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await InferStream(server, call).run(requests())
    assert server.closed == ["a"]


@pytest.mark.contract("GP-18")
async def test_call_past_its_deadline_ends_with_that_status(at_once: bool) -> None:
    talk = Talk(at_once=at_once, deadline=asyncio.get_running_loop().time() + 100)
    await talk.say(ask("many", "a"), ask("many", "b"))
    await talk.answer("a", number(1))
    for stream in talk.server.streams.values():
        stream.abort(DeadlineExceededError("Deadline Exceeded"))
    with pytest.raises(DeadlineExceededError):
        await asyncio.wait_for(talk.task, PATIENCE)
    assert numbers(talk.responses) == [("a", 1)]


# -- when the server stops -------------------------------------------------------------------------


@pytest.mark.contract("G-35")
async def test_an_idle_stream_ends_when_the_server_stops(talk: Talk) -> None:
    await talk.say(ask("once", "a"))
    await talk.answer("a", number(1, final=True))
    talk.server.stopped.set()
    with pytest.raises(UnavailableError, match="has stopped accepting new requests"):
        await asyncio.wait_for(talk.task, PATIENCE)


async def test_requests_in_flight_are_answered_before_the_stream_ends(talk: Talk) -> None:
    await talk.say(ask("once", "a"))
    talk.server.stopped.set()
    await turns()
    assert not talk.task.done()
    await talk.answer("a", number(1, final=True))
    assert len(talk.responses) == 1
    with pytest.raises(UnavailableError):
        await asyncio.wait_for(talk.task, PATIENCE)
