"""`ResponseStream`: one side sends, the other reads, and either may end it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import make_response, mark, marks, sent, turns
from penstock.core.errors import InferenceError, InternalError, RequestCancelledError
from penstock.core.flow_control import WINDOW, Window
from penstock.core.request import InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import DataType, Tensor

HIGH_WATER = WINDOW.responses
_FOUR_BYTES = InferenceResponse({"Y": Tensor(DataType.INT32, [1], bytes(4))})


class Ends:
    """Every call of a stream's `on_end`."""

    def __init__(self) -> None:
        self.errors: list[InferenceError | None] = []
        self.stream = ResponseStream(self.errors.append)


def _fill(stream: ResponseStream, count: int = HIGH_WATER) -> None:
    for number in range(count):
        stream.send(make_response(number))


# -- reading -------------------------------------------------------------------------------------


async def test_responses_are_read_in_the_order_they_were_sent() -> None:
    stream = sent(make_response(1), make_response(2), make_response(3, final=True))
    assert await marks(stream) == [1, 2, 3]


async def test_a_reader_waits_for_a_response() -> None:
    stream = ResponseStream()
    reading = asyncio.ensure_future(anext(stream))
    await turns()
    assert not reading.done()
    stream.send(make_response(7))
    assert mark(await reading) == 7


async def test_a_final_response_ends_the_stream() -> None:
    stream = sent(make_response(1, final=True))
    assert stream.ended
    assert not stream.exhausted
    assert await marks(stream) == [1]
    assert stream.exhausted


async def test_what_is_sent_is_transformed_where_that_is_asked_for() -> None:
    stream = ResponseStream()
    stream.transform = lambda response: make_response(mark(response) + 1, final=response.final)
    stream.send(make_response(1))
    stream.send(make_response(2, final=True))
    assert await marks(stream) == [2, 3]


async def test_the_end_without_a_final_response_wakes_the_reader() -> None:
    stream = ResponseStream()
    reading = asyncio.ensure_future(marks(stream))
    await turns()
    stream.end()
    assert await reading == []


async def test_an_error_is_raised_after_the_responses_before_it() -> None:
    stream = sent(make_response(1))
    stream.fail(InternalError("broken"))
    assert mark(await anext(stream)) == 1
    with pytest.raises(InternalError, match="broken"):
        await anext(stream)


async def test_an_error_is_raised_again_on_further_reads() -> None:
    stream = ResponseStream()
    stream.fail(error := InternalError("broken"))
    for _ in range(2):
        with pytest.raises(InternalError):
            await anext(stream)
    assert stream.error is error


async def test_an_error_inside_a_final_response_is_no_failure_of_the_stream() -> None:
    stream = sent(InferenceResponse(final=True, error=InternalError("in-band")))
    (response,) = [response async for response in stream]
    assert response.error is not None
    assert stream.error is None


async def test_nothing_follows_the_end() -> None:
    stream = sent(make_response(1, final=True))
    stream.send(make_response(2))
    stream.fail(InternalError("late"))
    stream.end()
    assert await marks(stream) == [1]
    assert stream.error is None


async def test_a_reader_that_is_cancelled_loses_nothing() -> None:
    stream = ResponseStream()
    reading = asyncio.ensure_future(anext(stream))
    await turns()
    reading.cancel()
    stream.send(make_response(1, final=True))
    await asyncio.wait([reading])
    assert await marks(stream) == [1]


async def test_a_reader_cancelled_as_its_response_comes_loses_nothing() -> None:
    stream = ResponseStream()
    reading = asyncio.ensure_future(anext(stream))
    await turns()
    stream.send(make_response(1, final=True))
    reading.cancel()
    await asyncio.wait([reading])
    assert await marks(stream) == [1]


# -- taking without waiting ----------------------------------------------------------------------


async def test_taking_gives_what_is_there_up_to_the_limit() -> None:
    stream = sent(make_response(1), make_response(2), make_response(3))
    assert [mark(r) for r in stream.take_ready(2)] == [1, 2]
    assert [mark(r) for r in stream.take_ready()] == [3]
    assert stream.take_ready() == []


async def test_a_limit_of_nothing_takes_nothing() -> None:
    stream = sent(make_response(1))
    assert stream.take_ready(0) == stream.take_ready(-1) == []
    assert stream.backlog == 1


async def test_a_watcher_is_called_for_every_response_and_the_end() -> None:
    stream, calls = ResponseStream(), []
    stream.watch(lambda: calls.append(stream.backlog))
    _fill(stream, 2)
    stream.end()
    assert calls == [1, 2, 2]


@pytest.mark.parametrize("stream", [sent(make_response(1)), sent(make_response(1, final=True))])
async def test_a_watcher_that_comes_late_is_called_at_once(stream: ResponseStream) -> None:
    calls: list[int] = []
    stream.watch(lambda: calls.append(stream.backlog))
    assert calls == [1]


# -- the producer's side -------------------------------------------------------------------------


async def test_there_is_room_until_the_high_water_mark() -> None:
    stream = ResponseStream()
    _fill(stream, HIGH_WATER - 1)
    await asyncio.wait_for(stream.room(), 20)


async def test_a_producer_waits_for_room_until_something_is_read() -> None:
    stream = ResponseStream()
    _fill(stream)
    waiting = asyncio.ensure_future(stream.room())
    await turns()
    assert not waiting.done()
    await anext(stream)
    await asyncio.wait_for(waiting, 20)


async def test_a_producer_that_waits_for_room_hears_that_the_reader_left() -> None:
    stream = ResponseStream()
    _fill(stream)
    waiting = asyncio.ensure_future(stream.room())
    await turns()
    stream.close()
    await asyncio.wait_for(waiting, 20)


def test_bytes_fill_a_stream_until_they_are_read() -> None:
    stream = ResponseStream(window=Window(size=12))
    full = []
    for _ in range(4):
        stream.send(_FOUR_BYTES)
        full.append(stream.full)
    assert full == [False, False, True, True]
    stream.take_ready(2)
    assert not stream.full
    stream.send(_FOUR_BYTES)
    assert stream.full


def test_a_transform_changes_how_full_a_stream_is() -> None:
    stream = ResponseStream(window=Window(size=4))
    stream.send(_FOUR_BYTES)
    assert stream.full
    stream.add_transform(lambda response: response.with_outputs({}))
    assert not stream.full


def test_a_stream_that_has_ended_keeps_no_producer() -> None:
    producer = Ends()
    stream = ResponseStream()
    stream.connect(producer.errors.clear)
    gone = ref(producer)
    del producer
    stream.end()
    assert gone() is None


async def test_the_producer_is_notified_of_the_responses_that_were_taken() -> None:
    stream = ResponseStream()
    taken: list[int] = []
    stream.connect(lambda: None, taken.append)
    _fill(stream, 5)
    await anext(stream)
    stream.take_ready(3)
    assert taken == [1, 3]


async def test_a_producer_that_has_ended_is_not_notified_any_more() -> None:
    stream = ResponseStream()
    taken: list[int] = []
    stream.connect(lambda: None, taken.append)
    _fill(stream, 2)
    stream.end()
    stream.take_ready()
    assert taken == []


# -- the end -------------------------------------------------------------------------------------


async def test_the_end_is_reported_once_without_an_error() -> None:
    ends = Ends()
    ends.stream.send(make_response(final=True))
    ends.stream.end()
    ends.stream.close()
    assert ends.errors == [None]


async def test_a_failure_is_reported_once() -> None:
    ends, error = Ends(), InternalError("broken")
    ends.stream.fail(error)
    ends.stream.fail(InternalError("again"))
    ends.stream.close()
    assert ends.errors == [error]


async def test_the_error_of_a_final_response_is_reported() -> None:
    ends, error = Ends(), InternalError("in-band")
    ends.stream.send(InferenceResponse(final=True, error=error))
    assert ends.errors == [error]


async def test_a_reader_that_leaves_early_is_reported_as_cancelled() -> None:
    ends = Ends()
    ends.stream.close()
    ends.stream.end()
    assert [type(error) for error in ends.errors] == [RequestCancelledError]


async def test_closing_notifies_the_producer_once() -> None:
    stream, calls = ResponseStream(), []
    stream.connect(lambda: calls.append("closed"))
    stream.close()
    stream.close()
    assert calls == ["closed"]


async def test_closing_after_the_end_does_not_bother_the_producer() -> None:
    stream, calls = ResponseStream(), []
    stream.connect(lambda: calls.append("closed"))
    stream.end()
    stream.close()
    assert calls == []


async def test_a_closed_stream_has_nothing_left_and_takes_nothing() -> None:
    stream = sent(make_response(1), make_response(2))
    stream.close()
    stream.send(make_response(3))
    assert stream.exhausted
    with pytest.raises(RequestCancelledError):
        await anext(stream)


async def test_closing_wakes_a_reader_in_another_task() -> None:
    stream = ResponseStream()
    reading = asyncio.ensure_future(anext(stream))
    await turns()
    stream.close()
    with pytest.raises(RequestCancelledError):
        await reading


@given(st.lists(st.sampled_from(["send", "final", "end", "fail", "close"])))
def test_whatever_happens_the_end_is_reported_exactly_once(steps: list[str]) -> None:
    ends = Ends()
    stream = ends.stream
    moves: dict[str, Callable[[], None]] = {
        "send": lambda: stream.send(make_response()),
        "final": lambda: stream.send(make_response(final=True)),
        "end": stream.end,
        "fail": lambda: stream.fail(InternalError("broken")),
        "close": stream.close,
    }
    for step in steps:
        moves[step]()
    assert len(ends.errors) == stream.ended == any(step != "send" for step in steps)


# -- held back -----------------------------------------------------------------------------------


async def test_a_held_stream_shows_nothing_until_it_is_released() -> None:
    stream = ResponseStream()
    stream.hold_back()
    reading = asyncio.ensure_future(marks(stream))
    stream.send(make_response(1))
    stream.send(make_response(2, final=True))
    await turns()
    assert stream.ended
    assert (reading.done(), stream.exhausted, stream.backlog) == (False, False, 0)
    assert (stream.take_ready(), stream.take_next()) == ([], None)
    stream.release_held()
    assert await reading == [1, 2]


async def test_the_end_of_a_held_stream_waits_too() -> None:
    stream = ResponseStream()
    stream.hold_back()
    reading = asyncio.ensure_future(marks(stream))
    stream.end()
    await turns()
    assert not reading.done()
    stream.release_held()
    assert await reading == []


async def test_who_watches_a_held_stream_is_called_when_it_is_released() -> None:
    stream, called = ResponseStream(), []
    stream.hold_back()
    stream.send(make_response(1, final=True))
    stream.watch(lambda: called.append(len(stream.take_ready())))
    assert called == []
    stream.release_held()
    assert called == [1]


async def test_a_held_stream_can_be_closed_by_its_reader() -> None:
    stream = ResponseStream()
    stream.hold_back()
    stream.close()
    with pytest.raises(RequestCancelledError):
        await marks(stream)


# -- stopping ------------------------------------------------------------------------------------


@pytest.mark.contract("PY-15")
async def test_producer_that_is_asked_to_stop_is_read_to_its_own_end() -> None:
    stream, asked = ResponseStream(), list[ResponseStream]()
    stream.connect(lambda: None, on_stop=asked.append)
    stream.send(make_response(1))
    stream.stop()
    stream.send(make_response(2, final=True))
    assert asked == [stream]
    assert await marks(stream) == [1, 2]


@pytest.mark.contract("PY-15")
@pytest.mark.parametrize("connected", [False, True])
async def test_stop_cancels_where_nobody_can_be_asked(connected: bool) -> None:
    """A queue, or a producer that only knows how to be left."""
    ends, closed = Ends(), list[int]()
    ends.stream.send(make_response(1))
    if connected:
        ends.stream.connect(lambda: closed.append(1))
    ends.stream.stop()
    assert mark(await anext(ends.stream)) == 1
    with pytest.raises(RequestCancelledError):
        await anext(ends.stream)
    assert ([type(error) for error in ends.errors], closed) == (
        [RequestCancelledError],
        [1] * connected,
    )


async def test_stop_after_the_end_changes_nothing() -> None:
    stream = sent(make_response(1, final=True))
    stream.stop()
    assert await marks(stream) == [1]
