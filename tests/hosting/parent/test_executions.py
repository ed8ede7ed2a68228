"""When a process may have its next batch, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from fakes import in_virtual_time
from penstock.core.call_chain import Call, Caller, Wait
from penstock.core.request import InferenceRequest
from penstock.hosting.parent.executions import Executions
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics

QUICK, SLOW = 100_000, 10_000_000
"""Nanoseconds of executions that do, and do not, let the next batch come early."""


def executions(
    ahead: int = 1,
    limit: float | None = None,
    on_late: Callable[[], None] = lambda: None,
    *,
    serial: bool = True,
) -> Executions:
    return Executions(serial=serial, ahead=ahead, limit=limit, on_late=on_late)


def batch(rows: int = 1, statistics: Statistics | None = None) -> list[Inference]:
    return [Inference(InferenceRequest("m"), rows, statistics or Statistics())]


class Room:
    """How often a process was said to have room for another batch."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def nothing() -> None:
    pass


async def test_one_batch_at_a_time() -> None:
    some, room = executions(), Room()
    some.sent(1, batch(), room)
    assert room.count == 0
    some.done(1, 0, 0, SLOW)
    assert room.count == 1


async def test_a_backend_that_is_not_serial_always_has_room() -> None:
    some, room = executions(serial=False), Room()
    for number in range(3):
        some.sent(number, batch(), room)
    assert room.count == 3


async def test_quick_executions_let_the_next_batch_come_early() -> None:
    some, room = executions(ahead=2), Room()
    some.sent(1, batch(), room)
    some.done(1, 0, 0, QUICK)
    some.sent(2, batch(), room)
    assert room.count == 2
    some.sent(3, batch(), room)
    assert room.count == 2


async def test_time_in_which_others_are_waited_for_is_no_time_of_the_execution() -> None:
    some, room = executions(ahead=2), Room()
    some.sent(1, batch(), room)
    some.done(1, 0, 0, SLOW + QUICK, waited=SLOW)
    some.sent(2, batch(), room)
    assert room.count == 2


async def test_slow_execution_ends_the_hurry() -> None:
    some, room = executions(ahead=2), Room()
    some.sent(1, batch(), room)
    some.done(1, 0, 0, QUICK)
    some.sent(2, batch(), nothing)
    some.done(2, 0, 0, SLOW)
    some.sent(3, batch(), room)
    assert room.count == 1


async def test_nobody_waits_for_the_instance_once_it_has_executed() -> None:
    """A thread of the model may answer later."""
    some, room, call = executions(), Room(), Call(Caller("a_0"), holds=True)
    (inference,) = requests = batch()
    inference.wait = Wait(call, list)
    some.sent(1, requests, room)
    assert call.waits == {inference.wait}
    some.done(1, 0, 0, 0)
    assert call.waits == set()


async def test_end_of_the_process_lets_everybody_go() -> None:
    some, room = executions(), Room()
    some.sent(1, batch(), room)
    some.clear()
    assert room.count == 1
    assert len(some) == 0


@in_virtual_time
async def test_execution_that_takes_too_long_is_reported_once() -> None:
    late: list[bool] = []
    some = executions(limit=0.02, on_late=lambda: late.append(True))
    some.sent(1, batch(), nothing)
    await asyncio.sleep(0.1)
    assert late == [True]


@in_virtual_time
async def test_time_of_an_execution_begins_when_the_one_before_is_done() -> None:
    late: list[bool] = []
    some = executions(ahead=2, limit=0.1, on_late=lambda: late.append(True))
    some.sent(1, batch(), nothing)
    some.sent(2, batch(), nothing)
    await asyncio.sleep(0.06)
    some.done(1, 0, 0, QUICK)
    await asyncio.sleep(0.06)
    assert late == []
    some.done(2, 0, 0, QUICK)
    await asyncio.sleep(0.12)
    assert late == []


async def test_executions_are_counted_with_their_times() -> None:
    statistics = Statistics()
    some = executions()
    some.sent(1, batch(3, statistics) + batch(2, statistics), nothing)
    some.done(1, 1000, 1100, 1500)
    assert statistics.execution_count == 1
    counted = statistics.batches[5]
    assert (counted.compute_input.ns, counted.compute_infer.ns) == (100, 400)


@given(st.integers(0, 6), st.integers(0, 6))
def test_only_what_was_not_begun_is_given_back_but_not_the_first(done: int, begun: int) -> None:
    @in_virtual_time
    async def play() -> None:
        some = executions(ahead=16)
        batches = {number: batch() for number in range(1, 7)}
        for number, each in batches.items():
            some.sent(number, each, nothing)
        for number in range(1, done + 1):
            some.done(number, 0, 0, QUICK)
        expected = [each for n, each in batches.items() if n > max(begun, done + 1)]
        assert some.not_begun(begun) == expected
        assert len(some) == 6 - done - len(expected)

    play()


async def test_batches_that_overlap_are_not_given_back() -> None:
    some = executions(serial=False)
    for number in (1, 2):
        some.sent(number, batch(), nothing)
    assert some.not_begun(0) == []


async def test_batch_that_is_not_known_changes_nothing() -> None:
    """The process was ended while it said so."""
    some, room = executions(), Room()
    some.sent(1, batch(), room)
    some.done(9, 0, 0, QUICK)
    assert (len(some), room.count) == (1, 0)
