"""When a process may have its next batch, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fakes import in_virtual_time
from penstock.core.inference import Inference
from penstock.core.request import InferenceRequest
from penstock.core.statistics import Statistics
from penstock.hosting.executions import Executions

QUICK, SLOW = 100_000, 10_000_000
"""Nanoseconds of executions that do, and do not, let the next batch come early."""


def executions(
    ahead: int = 1,
    limit: float | None = None,
    on_late: Callable[[], None] = lambda: None,
    statistics: Statistics | None = None,
) -> Executions:
    return Executions(
        statistics or Statistics(), serial=True, ahead=ahead, limit=limit, on_late=on_late
    )


def batch(rows: int = 1) -> list[Inference]:
    return [Inference(InferenceRequest("m"), rows, Statistics())]


async def has_room(executions: Executions) -> bool:
    waiting = asyncio.ensure_future(executions.room())
    await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    return done


async def test_one_batch_at_a_time() -> None:
    some = executions()
    assert await has_room(some)
    some.sent(1, batch())
    assert not await has_room(some)
    some.done(1, 0, 0, SLOW)
    assert await has_room(some)


async def test_waiting_ends_when_the_batch_is_done() -> None:
    some = executions()
    some.sent(1, batch())
    waiting = asyncio.ensure_future(some.room())
    await asyncio.sleep(0)
    some.done(1, 0, 0, SLOW)
    await asyncio.wait_for(waiting, 1)


async def test_quick_executions_let_the_next_batch_come_early() -> None:
    some = executions(ahead=2)
    some.sent(1, batch())
    assert not await has_room(some)
    some.done(1, 0, 0, QUICK)
    some.sent(2, batch())
    assert await has_room(some)
    some.sent(3, batch())
    assert not await has_room(some)


async def test_slow_execution_ends_the_hurry() -> None:
    some = executions(ahead=2)
    some.sent(1, batch())
    some.done(1, 0, 0, QUICK)
    some.sent(2, batch())
    some.done(2, 0, 0, SLOW)
    some.sent(3, batch())
    assert not await has_room(some)


async def test_end_of_the_process_lets_everybody_go() -> None:
    some = executions()
    some.sent(1, batch())
    waiting = asyncio.ensure_future(some.room())
    await asyncio.sleep(0)
    some.clear()
    await asyncio.wait_for(waiting, 1)
    assert len(some) == 0


@in_virtual_time
async def test_execution_that_takes_too_long_is_reported_once() -> None:
    late: list[bool] = []
    some = executions(limit=0.02, on_late=lambda: late.append(True))
    some.sent(1, batch())
    await asyncio.sleep(0.1)
    assert late == [True]


@in_virtual_time
async def test_time_of_an_execution_begins_when_the_one_before_is_done() -> None:
    late: list[bool] = []
    some = executions(ahead=2, limit=0.1, on_late=lambda: late.append(True))
    some.sent(1, batch())
    some.sent(2, batch())
    await asyncio.sleep(0.06)
    some.done(1, 0, 0, QUICK)
    await asyncio.sleep(0.06)
    assert late == []
    some.done(2, 0, 0, QUICK)
    await asyncio.sleep(0.12)
    assert late == []


async def test_executions_are_counted_with_their_times() -> None:
    statistics = Statistics()
    some = executions(statistics=statistics)
    some.sent(1, batch(rows=3) + batch(rows=2))
    some.done(1, 1000, 1100, 1500)
    assert statistics.execution_count == 1
    counted = statistics.batches[5]
    assert (counted.compute_input.ns, counted.compute_infer.ns) == (100, 400)


async def test_batch_that_is_not_known_counts_nothing() -> None:
    """The process was ended while it said so."""
    statistics = Statistics()
    executions(statistics=statistics).done(9, 0, 0, QUICK)
    assert statistics.execution_count == 0
