"""From a backend's outcome to the stream that the client reads."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import Tokens, make_request, make_response, mark, marks, sent
from penstock.core.backend import Backend, InstanceContext, Outcome
from penstock.core.delivery import deliver, execute_batch
from penstock.core.errors import (
    InternalError,
    UnavailableError,
)
from penstock.core.flow_control import WINDOW
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream

HIGH_WATER = WINDOW.responses


async def _answer(outcome: Any) -> list[Any]:
    """The responses that a client reads for an `outcome`."""
    sink = ResponseStream()
    deliver(outcome, sink)
    return await marks(sink)


class Raising(Backend):
    """Raises its error."""

    error: Exception

    async def initialize(self, context: InstanceContext) -> None:
        raise NotImplementedError  # nobody loads it

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        raise self.error


# -- whole batches -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "logged"),
    [(KeyError("slip"), True), (InternalError("said so"), False)],
    ids=["a slip in its code", "an error of its own"],
)
async def test_a_slip_of_a_backend_is_logged_with_its_traceback(
    error: Exception, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    backend = Raising()
    backend.error = error
    with caplog.at_level(logging.ERROR):
        (outcome,) = await execute_batch(backend, [make_request()], "m_0_0")
    assert isinstance(outcome, InternalError)
    raised = [one.exc_info[1] for one in caplog.records if one.exc_info]
    assert raised == ([error] if logged else [])


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


async def test_a_generator_is_read_in_a_task_of_its_own() -> None:
    tokens, sink = Tokens(2), ResponseStream()
    task = deliver(tokens.generate(), sink)
    assert task is not None
    await task
    assert await marks(sink) == [0, 1]


# -- functions -----------------------------------------------------------------------------------


async def test_a_function_pushes_into_the_clients_own_stream() -> None:
    streams: list[ResponseStream] = []
    sink = ResponseStream()
    deliver(streams.append, sink)
    assert streams == [sink]


async def test_what_a_function_raises_ends_the_stream() -> None:
    def begin(_: ResponseStream) -> None:
        raise UnavailableError("nobody is there")

    with pytest.raises(UnavailableError, match="nobody is there"):
        await _answer(begin)


async def test_a_function_is_not_called_for_a_reader_that_left() -> None:
    streams: list[ResponseStream] = []
    sink = ResponseStream()
    sink.close()
    deliver(streams.append, sink)
    assert not streams


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
    while ready := last.take_ready(take):
        read += map(mark, ready)
    assert read == list(range(count))
    assert last.exhausted


def test_a_watching_reader_gets_a_long_burst_in_order() -> None:
    """Reading inside the callback makes room inside the callback, and so on."""
    source, sink = ResponseStream(), ResponseStream()
    read: list[Any] = []
    for number in range(5000):
        source.send(make_response(number))
    sink.watch(lambda: read.extend(map(mark, sink.take_ready())))
    deliver(source, sink)
    assert read == list(range(5000))
