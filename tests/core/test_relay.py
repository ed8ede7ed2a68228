"""From a backend's outcome to the stream that the client reads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import Tokens, make_response, mark, marks, sent, turns
from penstock.core.errors import (
    InternalError,
    RequestCancelledError,
    UnavailableError,
    as_inference_error,
)
from penstock.core.relay import deliver
from penstock.core.request import InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.window import WINDOW

HIGH_WATER = WINDOW.responses


async def _answer(outcome: Any) -> list[Any]:
    """What a client reads that gets `outcome` for its request."""
    sink = ResponseStream()
    deliver(outcome, sink)
    return await marks(sink)


# -- errors --------------------------------------------------------------------------------------


def test_an_error_of_ours_stays_itself() -> None:
    error = UnavailableError("busy")
    assert as_inference_error(error) is error


def test_a_foreign_error_becomes_internal_with_its_class_and_text() -> None:
    error = as_inference_error(KeyError("logits"))
    assert (type(error), error.message) == (InternalError, "KeyError: 'logits'")


def test_a_foreign_error_without_text_is_named() -> None:
    assert as_inference_error(RuntimeError()).message == "RuntimeError"


def test_a_cancellation_becomes_one_of_ours() -> None:
    assert type(as_inference_error(asyncio.CancelledError())) is RequestCancelledError


# -- single outcomes -----------------------------------------------------------------------------


async def test_a_response_is_the_only_and_final_one() -> None:
    sink = ResponseStream()
    assert deliver(make_response(1), sink) is None
    (response,) = [response async for response in sink]
    assert (mark(response), response.final) == (1, True)


async def test_an_error_is_raised_to_the_client() -> None:
    with pytest.raises(UnavailableError, match="busy"):
        await _answer(UnavailableError("busy"))


@pytest.mark.parametrize("outcome", [None, "text", 7, [make_response()], ValueError("raised")])
async def test_nonsense_is_refused_by_its_type(outcome: Any) -> None:
    name = type(outcome).__name__
    with pytest.raises(InternalError, match=f"backend answered with {name}, not a response"):
        await _answer(outcome)


@pytest.mark.parametrize("outcome", [make_response(1), InternalError("x"), sent(), None])
async def test_an_outcome_for_a_reader_that_left_goes_nowhere(outcome: Any) -> None:
    sink = ResponseStream()
    sink.close()
    deliver(outcome, sink)
    assert sink.exhausted


# -- generators ----------------------------------------------------------------------------------


async def test_the_responses_of_a_generator_come_in_order() -> None:
    assert await _answer(Tokens(40).generate()) == list(range(40))


async def test_a_generator_without_responses_is_an_empty_stream() -> None:
    assert await _answer(Tokens(0).generate()) == []


async def test_a_generator_is_closed_when_it_is_done() -> None:
    tokens = Tokens(2)
    await _answer(tokens.generate())
    assert tokens.closed


async def test_a_final_response_ends_a_generator_that_goes_on() -> None:
    closed = False

    async def generate() -> AsyncIterator[InferenceResponse]:
        nonlocal closed
        try:
            yield make_response(1, final=True)
            yield make_response(2)
        finally:
            closed = True

    assert await _answer(generate()) == [1]
    await turns()
    assert closed


async def test_a_generator_that_raises_fails_the_stream_after_its_responses() -> None:
    tokens, read = Tokens(2, error=KeyError("lost")), []
    sink = ResponseStream()
    deliver(tokens.generate(), sink)
    with pytest.raises(InternalError, match="KeyError: 'lost'"):
        read.extend([mark(response) async for response in sink])
    assert tokens.closed


async def test_a_generator_whose_engine_was_cancelled_fails_the_stream() -> None:
    with pytest.raises(RequestCancelledError):
        await _answer(Tokens(1, error=asyncio.CancelledError()).generate())


@pytest.mark.parametrize("nonsense", [None, "token", InternalError("yielded")])
async def test_nonsense_from_a_generator_fails_the_stream_and_is_not_passed_on(
    nonsense: Any,
) -> None:
    async def generate() -> AsyncIterator[Any]:
        yield make_response(1)
        yield nonsense

    sink = ResponseStream()
    deliver(generate(), sink)
    assert mark(await anext(sink)) == 1
    with pytest.raises(InternalError, match=f"answered with {type(nonsense).__name__}"):
        await anext(sink)


async def test_an_iterator_that_is_no_generator_will_do() -> None:
    class Countdown:
        left = 2

        def __aiter__(self) -> Countdown:
            return self

        async def __anext__(self) -> InferenceResponse:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return make_response(self.left)

    assert await _answer(Countdown()) == [1, 0]


async def test_a_generator_runs_ahead_of_its_reader_only_so_far() -> None:
    tokens, sink = Tokens(100), ResponseStream()
    deliver(tokens.generate(), sink)
    await turns(200)
    assert tokens.made == HIGH_WATER
    await anext(sink)
    await turns()
    assert tokens.made == HIGH_WATER + 1


async def test_a_reader_that_leaves_closes_a_generator_that_waits() -> None:
    tokens, sink = Tokens(1, end=asyncio.Event()), ResponseStream()
    task = deliver(tokens.generate(), sink)
    await anext(sink)
    sink.close()
    assert task is not None
    await asyncio.wait([task])
    assert tokens.closed


async def test_a_reader_that_leaves_closes_a_generator_that_waits_for_room() -> None:
    tokens, sink = Tokens(100), ResponseStream()
    task = deliver(tokens.generate(), sink)
    await turns(50)
    sink.close()
    assert task is not None
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
    task = deliver(Engine(), sink)  # type: ignore[arg-type]
    sink.close()
    assert task is not None
    await asyncio.wait([task])
    assert calls == ["closed"]


async def test_a_generator_that_will_not_hear_of_its_end_is_left_all_the_same() -> None:
    async def generate() -> AsyncIterator[InferenceResponse]:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                yield make_response("unwanted")

    sink = ResponseStream()
    task = deliver(generate(), sink)
    await turns()
    sink.close()
    assert task is not None
    await asyncio.wait_for(task, 1)
    assert sink.exhausted


async def test_a_generator_whose_closing_fails_is_logged_and_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def generate() -> AsyncIterator[InferenceResponse]:
        try:
            yield make_response(1, final=True)
        finally:
            raise OSError("abort failed")

    with caplog.at_level(logging.ERROR):
        assert await _answer(generate()) == [1]
        await turns()
    assert caplog.messages == ["closing a response generator failed"]


# -- streams -------------------------------------------------------------------------------------


async def test_responses_of_a_stream_arrive_as_they_are_sent() -> None:
    source, sink = ResponseStream(), ResponseStream()
    assert deliver(source, sink) is None
    source.send(make_response(1))
    assert mark(await anext(sink)) == 1
    source.send(make_response(2, final=True))
    assert await marks(sink) == [2]


async def test_a_stream_that_was_sent_before_is_passed_on() -> None:
    assert await _answer(sent(make_response(1), make_response(2, final=True))) == [1, 2]


async def test_a_stream_ends_with_its_source() -> None:
    source, sink = sent(make_response(1)), ResponseStream()
    deliver(source, sink)
    source.end()
    assert await marks(sink) == [1]


async def test_a_stream_fails_with_its_source_after_its_responses() -> None:
    source, sink = sent(make_response(1)), ResponseStream()
    deliver(source, sink)
    source.fail(UnavailableError("engine died"))
    assert mark(await anext(sink)) == 1
    with pytest.raises(UnavailableError, match="engine died"):
        await anext(sink)


async def test_a_source_that_failed_full_fails_after_all_was_read() -> None:
    source, sink = ResponseStream(), ResponseStream()
    deliver(source, sink)
    for number in range(HIGH_WATER + 3):
        source.send(make_response(number))
    source.fail(UnavailableError("engine died"))
    read = [mark(await anext(sink)) for _ in range(HIGH_WATER + 3)]
    assert read == list(range(HIGH_WATER + 3))
    with pytest.raises(UnavailableError):
        await anext(sink)


async def test_a_stream_holds_no_more_than_its_reader_can_take() -> None:
    source, sink = ResponseStream(), ResponseStream()
    taken: list[int] = []
    source.connect(lambda: None, taken.append)
    deliver(source, sink)
    for number in range(HIGH_WATER + 9):
        source.send(make_response(number))
    assert (sink.backlog, source.backlog, sum(taken)) == (HIGH_WATER, 9, HIGH_WATER)


async def test_a_reader_that_leaves_closes_the_source() -> None:
    source, sink, calls = ResponseStream(), ResponseStream(), []
    source.connect(lambda: calls.append("closed"))
    deliver(source, sink)
    sink.close()
    assert calls == ["closed"]


async def test_a_source_for_a_reader_that_left_is_closed_at_once() -> None:
    source, sink, calls = ResponseStream(), ResponseStream(), []
    source.connect(lambda: calls.append("closed"))
    sink.close()
    deliver(source, sink)
    assert calls == ["closed"]


@given(st.integers(0, 4 * HIGH_WATER), st.integers(0, 3), st.integers(1, 2 * HIGH_WATER))
def test_a_chain_of_streams_keeps_the_order(count: int, links: int, take: int) -> None:
    """Also where each link's room is made by the next one's reading."""
    first = last = ResponseStream()
    for _ in range(links):
        source, last = last, ResponseStream()
        deliver(source, last)
    for number in range(count):
        first.send(make_response(number))
    first.end()
    read: list[Any] = []
    while ready := last.take(take):
        read += map(mark, ready)
    assert read == list(range(count))
    assert last.exhausted


def test_a_watching_reader_gets_a_long_burst_in_order() -> None:
    """Reading inside the callback makes room inside the callback, and so on."""
    source, sink = ResponseStream(), ResponseStream()
    read: list[Any] = []
    for number in range(5000):
        source.send(make_response(number))
    sink.watch(lambda: read.extend(map(mark, sink.take())))
    deliver(source, sink)
    assert read == list(range(5000))
