"""Batches that a model process was sent: room for more, and their times."""

from __future__ import annotations

import asyncio

import pytest

from fakes import in_virtual_time
from hosting.parent.in_flight.peer import (
    NOTHING,
    QUICK,
    SLOW,
    Room,
    answer,
    batch,
    done,
    in_flight,
    nothing,
)
from penstock.core.call_chain import CallingInstance, NestedCall, Wait
from penstock.inflight.statistics import Duration, Statistics


async def test_one_batch_at_a_time() -> None:
    some, room = in_flight(), Room()
    some.send(batch(), room)
    assert room.count == 0
    done(some, 1, SLOW)
    assert room.count == 1


async def test_a_backend_that_is_not_serial_always_has_room() -> None:
    some, room = in_flight(serial=False), Room()
    for _ in range(3):
        some.send(batch(), room)
    assert room.count == 3


async def test_quick_executions_let_the_next_batch_be_sent_early() -> None:
    some, room = in_flight(ahead=2), Room()
    some.send(batch(), room)
    done(some, 1, QUICK)
    some.send(batch(), room)
    assert room.count == 2
    some.send(batch(), room)
    assert room.count == 2


async def test_time_waited_for_other_models_is_not_time_of_the_execution() -> None:
    some, room = in_flight(ahead=2), Room()
    some.send(batch(), room)
    done(some, 1, SLOW + QUICK, waited=SLOW)
    some.send(batch(), room)
    assert room.count == 2


async def test_slow_execution_closes_the_window() -> None:
    some, room = in_flight(ahead=2), Room()
    some.send(batch(), room)
    done(some, 1, QUICK)
    some.send(batch(), nothing)
    done(some, 2, SLOW)
    some.send(batch(), room)
    assert room.count == 1


async def test_callers_do_not_wait_for_an_instance_that_has_executed() -> None:
    """A thread of the model may answer later."""
    some, room, call = in_flight(), Room(), NestedCall(CallingInstance("a_0"), blocking=True)
    (inference,) = requests = batch()
    inference.wait = Wait(call, list)
    some.send(requests, room)
    assert call.waits == {inference.wait}
    done(some, 1, 0)
    assert call.waits == set()


@in_virtual_time
async def test_execution_that_takes_too_long_is_reported_once() -> None:
    late: list[bool] = []
    some = in_flight(limit=0.02, on_late=lambda: late.append(True))
    some.send(batch(), nothing)
    await asyncio.sleep(0.1)
    assert late == [True]


@in_virtual_time
async def test_time_of_an_execution_begins_when_the_one_before_is_done() -> None:
    late: list[bool] = []
    some = in_flight(ahead=2, limit=0.1, on_late=lambda: late.append(True))
    some.send(batch(), nothing)
    some.send(batch(), nothing)
    await asyncio.sleep(0.06)
    done(some, 1, QUICK)
    await asyncio.sleep(0.06)
    assert late == []
    done(some, 2, QUICK)
    await asyncio.sleep(0.12)
    assert late == []


async def test_executions_are_counted_with_their_times() -> None:
    statistics = Statistics()
    some = in_flight()
    some.send(batch(3, statistics) + batch(2, statistics), nothing)
    some.on_done((1, 1000, 1100, 1500, 0), NOTHING)
    assert statistics.execution_count == 1
    counted = statistics.batches[5]
    assert (counted.compute_input.ns, counted.compute_infer.ns) == (100, 400)


@pytest.mark.contract("DC-05")
@pytest.mark.parametrize("serial", [True, False])
async def test_times_of_a_decoupled_request_are_those_of_its_execution(serial: bool) -> None:
    """Its responses may follow much later."""
    statistics = Statistics(decoupled=True)
    some = in_flight(serial=serial)
    some.send(batch(1, statistics), nothing)
    some.on_done((1, 1000, 1100, 1500, 0), NOTHING)
    answer(some, 1, final=True)
    counted = statistics.batches[1]
    assert (statistics.compute_input, statistics.compute_infer, statistics.compute_output) == (
        counted.compute_input,
        counted.compute_infer,
        counted.compute_output,
    )
    assert statistics.compute_infer == Duration(1, 400)


async def test_unknown_batch_changes_nothing() -> None:
    """Its process was killed while the message was read."""
    some, room = in_flight(), Room()
    some.send(batch(), room)
    done(some, 9, QUICK)
    assert some.executing
    assert room.count == 0
