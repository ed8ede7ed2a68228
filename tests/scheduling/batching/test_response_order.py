"""Responses leave in the order of their requests."""

from __future__ import annotations

import asyncio
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import in_virtual_time, make_inference, make_response, marks, turns
from penstock.core.errors import InternalError
from penstock.inflight.inference import Inference
from penstock.scheduling.batching.dynamic_batcher import ResponseOrder

pytestmark = pytest.mark.contract("D-08")


class Readers:
    """Readers of some requests; `seen` is what they got, in order."""

    def __init__(self, ids: str) -> None:
        self.inferences = {id: make_inference(id) for id in ids}
        self.seen: list[str] = []
        self.order = ResponseOrder()
        self.order.add(self.inferences.values())
        self.tasks = {id: asyncio.ensure_future(self._read(i)) for id, i in self.inferences.items()}

    async def _read(self, inference: Inference) -> None:
        try:
            async for response in inference.stream:
                self.seen.append(str(response.parameters["mark"]))
        except InternalError as error:
            self.seen.append(str(error))

    async def answer(self, id: str, text: str = "", *, final: bool = True) -> None:
        self.inferences[id].stream.send(make_response(text or id, final=final))
        await turns()

    async def leave(self, id: str) -> None:
        self.tasks[id].cancel()
        self.inferences[id].stream.close()
        await turns()


@pytest.mark.parametrize("answered", ["".join(p) for p in permutations("abc")])
async def test_whatever_is_ready_first_the_order_is_that_of_the_requests(answered: str) -> None:
    readers = Readers("abc")
    for id in answered:
        await readers.answer(id)
    assert readers.seen == ["a", "b", "c"]


async def test_those_answered_in_one_turn_are_read_in_order() -> None:
    readers = Readers("abc")
    await turns()
    for id in "cba":
        readers.inferences[id].stream.send(make_response(id, final=True))
    await turns()
    assert readers.seen == ["a", "b", "c"]


async def test_responses_of_the_first_request_stream_and_those_of_others_wait() -> None:
    readers = Readers("ab")
    await readers.answer("b", "b1", final=False)
    await readers.answer("a", "a1", final=False)
    assert readers.seen == ["a1"]
    await readers.answer("a", "a2")
    await readers.answer("b", "b2")
    assert readers.seen == ["a1", "a2", "b1", "b2"]


async def test_an_error_waits_for_its_turn_and_lets_the_next_answer() -> None:
    readers = Readers("abc")
    readers.inferences["b"].fail(InternalError("b failed"))
    await readers.answer("c")
    assert readers.seen == []
    await readers.answer("a")
    assert readers.seen == ["a", "b failed", "c"]


@pytest.mark.parametrize("leaving", "abc")
async def test_a_cancelled_request_does_not_hold_up_others(leaving: str) -> None:
    readers = Readers("abc")
    await readers.leave(leaving)
    for id in "cba":
        await readers.answer(id)
    assert readers.seen == [id for id in "abc" if id != leaving]


async def test_later_batches_wait_for_earlier_ones() -> None:
    readers = Readers("a")
    late = make_inference("b")
    readers.order.add([late])
    late.stream.send(make_response("b", final=True))
    reading = asyncio.ensure_future(marks(late.stream))
    await turns()
    assert not reading.done()
    await readers.answer("a")
    assert await reading == ["b"]


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
@in_virtual_time
async def test_requests_that_are_not_cancelled_are_answered_in_order(
    answered: list[int], leaving: set[int]
) -> None:
    readers = Readers("012345")
    for number in answered:
        if number in leaving:
            await readers.leave(str(number))
        else:
            await readers.answer(str(number))
    assert readers.seen == [str(n) for n in range(6) if n not in leaving]
