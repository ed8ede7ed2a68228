"""`Pump`: a response generator of a backend, relayed to a stream under backpressure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import Tokens, make_response, mark, marks, turns
from penstock.core.errors import InferenceError, InternalError, RequestCancelledError
from penstock.core.flow_control import WINDOW, Window
from penstock.core.pump import Pump
from penstock.core.request import InferenceResponse
from penstock.core.stream import ResponseStream

HIGH_WATER = WINDOW.responses


def _pumped(source: Any) -> ResponseStream:
    sink = ResponseStream()
    Pump(source, sink)
    return sink


# -- to the end ----------------------------------------------------------------------------------


async def test_responses_come_in_order() -> None:
    assert await marks(_pumped(Tokens(40).generate())) == list(range(40))


async def test_a_generator_without_responses_is_an_empty_stream() -> None:
    assert await marks(_pumped(Tokens(0).generate())) == []


async def test_a_response_can_be_read_before_the_next_one_is_made() -> None:
    tokens = Tokens(1, end=asyncio.Event())
    sink = _pumped(tokens.generate())
    assert mark(await anext(sink)) == 0
    assert not sink.ended
    sink.close()


async def test_a_generator_is_closed_when_it_is_done() -> None:
    tokens = Tokens(2)
    await marks(_pumped(tokens.generate()))
    assert tokens.closed


async def test_a_final_response_ends_a_generator_that_goes_on() -> None:
    tokens: list[str] = []

    async def generate() -> AsyncIterator[InferenceResponse]:
        try:
            yield make_response(1, final=True)
            tokens.append("made another")
            yield make_response(2)
        finally:
            tokens.append("closed")

    sink = ResponseStream()
    pump = Pump(generate(), sink)
    await pump.task
    assert await marks(sink) == [1]
    assert tokens == ["closed"]


async def test_an_iterator_that_is_no_generator_will_do(caplog: pytest.LogCaptureFixture) -> None:
    class Countdown:
        left = 2

        def __aiter__(self) -> Countdown:
            return self

        async def __anext__(self) -> InferenceResponse:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return make_response(self.left)

    assert await marks(_pumped(Countdown())) == [1, 0]
    await turns()
    assert caplog.messages == []


# -- failures ------------------------------------------------------------------------------------


async def test_a_generator_that_raises_fails_the_stream_after_its_responses() -> None:
    tokens = Tokens(2, error=KeyError("lost"))
    sink = _pumped(tokens.generate())
    assert [mark(await anext(sink)) for _ in range(2)] == [0, 1]
    with pytest.raises(InternalError, match="KeyError: 'lost'"):
        await anext(sink)
    assert tokens.closed


async def test_a_generator_whose_engine_was_cancelled_fails_the_stream() -> None:
    sink = _pumped(Tokens(1, error=asyncio.CancelledError()).generate())
    assert mark(await anext(sink)) == 0
    with pytest.raises(RequestCancelledError):
        await anext(sink)


@pytest.mark.parametrize("nonsense", [None, "token", InternalError("yielded")])
async def test_nonsense_fails_the_stream_and_is_not_passed_on(nonsense: Any) -> None:
    closed = asyncio.Event()

    async def generate() -> AsyncIterator[Any]:
        try:
            yield make_response(1)
            yield nonsense
        finally:
            closed.set()

    sink = _pumped(generate())
    assert mark(await anext(sink)) == 1
    with pytest.raises(InternalError, match=f"answered with {type(nonsense).__name__}"):
        await anext(sink)
    await asyncio.wait_for(closed.wait(), 20)


async def test_a_failure_to_close_a_generator_is_logged_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def generate() -> AsyncIterator[InferenceResponse]:
        try:
            yield make_response(1, final=True)
        finally:
            raise OSError("abort failed")

    sink = ResponseStream()
    pump = Pump(generate(), sink)
    with caplog.at_level(logging.ERROR):
        await pump.task
    assert await marks(sink) == [1]
    assert caplog.messages == ["closing a response generator failed"]


# -- back-pressure -------------------------------------------------------------------------------


async def test_a_generator_runs_ahead_of_its_reader_only_so_far() -> None:
    tokens = Tokens(100)
    sink = _pumped(tokens.generate())
    await turns(200)
    assert tokens.made == HIGH_WATER
    await anext(sink)
    await turns()
    assert tokens.made == HIGH_WATER + 1
    sink.close()


@settings(deadline=None)
@given(
    count=st.integers(0, 12),
    window=st.integers(1, 5),
    takes=st.lists(st.integers(0, 4), max_size=8),
    failure=st.sampled_from([None, InternalError("broken")]),
    leave_at=st.none() | st.integers(0, 8),
)
async def test_whatever_the_reader_does_it_gets_a_beginning_and_the_generator_is_closed(
    count: int,
    window: int,
    takes: list[int],
    failure: InferenceError | None,
    leave_at: int | None,
) -> None:
    """Nothing is lost, doubled or made too early; who stays gets all of it, and then the error."""
    tokens = Tokens(count, error=failure)
    sink = ResponseStream(window=Window(window))
    task = Pump(tokens.generate(), sink).task
    read: list[int] = []
    for take in takes[:leave_at]:
        await turns(count + 5)
        read += map(mark, sink.take_ready(take))
        assert tokens.made <= len(read) + window + 1
    if leave_at is not None:
        sink.close()
    while not task.done():
        await turns(1)
        read += map(mark, sink.take_ready())
    read += map(mark, sink.take_ready())
    assert read == list(range(len(read)))
    assert tokens.closed or tokens.made == 0
    assert sink.exhausted
    if leave_at is None:
        assert len(read) == count
        assert sink.error is failure


# -- a reader that leaves ------------------------------------------------------------------------


async def test_it_closes_a_generator_that_waits() -> None:
    tokens, sink = Tokens(1, end=asyncio.Event()), ResponseStream()
    task = Pump(tokens.generate(), sink).task
    await anext(sink)
    sink.close()
    await asyncio.wait([task])
    assert tokens.closed


async def test_it_closes_a_generator_that_waits_for_room() -> None:
    tokens, sink = Tokens(100), ResponseStream()
    task = Pump(tokens.generate(), sink).task
    await turns(50)
    sink.close()
    await asyncio.wait([task])
    assert tokens.closed
    assert tokens.made == HIGH_WATER


@pytest.mark.parametrize("leave_first", [True, False])
async def test_an_iterator_that_never_began_is_closed_unread(leave_first: bool) -> None:
    """The reader left while the batch was executing, or in the turn in which it was answered."""
    calls: list[str] = []

    class Engine:
        async def __anext__(self) -> InferenceResponse:
            calls.append("next")
            return make_response()

        async def aclose(self) -> None:
            await asyncio.sleep(0)
            calls.append("closed")

    sink = ResponseStream()
    if leave_first:
        sink.close()
    task = Pump(Engine(), sink).task  # type: ignore[arg-type]
    sink.close()
    await asyncio.wait([task])
    assert calls == ["closed"]


async def test_a_generator_that_will_not_hear_of_its_end_is_left_all_the_same() -> None:
    async def generate() -> AsyncIterator[InferenceResponse]:
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                yield make_response("unwanted")

    sink = ResponseStream()
    task = Pump(generate(), sink).task
    await turns()
    sink.close()
    await turns()
    assert task.done()


async def test_it_harms_no_neighbour() -> None:
    leaving, staying = ResponseStream(), ResponseStream()
    for sink in (leaving, staying):
        Pump(Tokens(40).generate(), sink)
    await turns()
    leaving.close()
    assert await marks(staying) == list(range(40))
