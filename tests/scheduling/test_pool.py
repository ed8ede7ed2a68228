"""Idle and busy instances, and running executions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from fakes import FakeInstance, make_inference, marks, turns
from penstock.core.errors import InternalError
from penstock.inflight.inference import Inference
from penstock.scheduling.direct import InstancePool


class Calls:
    """How often a pool said that an instance may take a batch."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


class Immediate(FakeInstance):
    """Has room for the next batch at once."""

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        done()


def _pool(*instances: FakeInstance) -> InstancePool:
    return InstancePool(instances, Calls())


async def test_idle_instances_take_turns() -> None:
    first, second = FakeInstance("a"), FakeInstance("b")
    pool = _pool(first, second)
    assert [pool.idle() for _ in range(3)] == [first, second, first]


async def test_a_serial_instance_is_busy_until_its_batch_is_answered() -> None:
    instance = FakeInstance(held=True)
    pool = _pool(instance)
    pool.run(instance, [make_inference()])
    assert pool.idle() is None
    instance.release()
    await pool.drain()
    assert pool.idle() is instance


async def test_an_instance_that_is_not_serial_is_never_busy() -> None:
    instance = FakeInstance(serial=False, held=True)
    pool = _pool(instance)
    for _ in range(3):
        pool.run(instance, [make_inference()])
        assert pool.idle() is instance
    await turns()
    assert instance.running == 3
    instance.release()
    await pool.drain()


async def test_an_instance_that_is_away_is_not_idle() -> None:
    away, here = FakeInstance("a"), FakeInstance("b")
    away.go_away()
    pool = _pool(away, here)
    assert [pool.idle(), pool.idle()] == [here, here]


async def test_instances_of_one_name_are_distinct() -> None:
    first, second = FakeInstance("same", held=True), FakeInstance("same")
    pool = _pool(first, second)
    pool.run(first, [make_inference()])
    assert pool.idle() is second
    first.release()
    await pool.drain()


async def test_the_scheduler_hears_of_an_instance_that_came_back() -> None:
    instance, calls = FakeInstance(), Calls()
    InstancePool([instance], calls)
    instance.come_back()
    assert calls.count == 1


async def test_the_scheduler_hears_of_every_execution_that_is_done() -> None:
    instance, calls = FakeInstance(), Calls()
    pool = InstancePool([instance], calls)
    pool.run(instance, [make_inference()])
    await pool.drain()
    assert calls.count == 1


async def test_an_execution_begins_at_once() -> None:
    instance = FakeInstance()
    pool = _pool(instance)
    pool.run(instance, [make_inference("a")])
    assert instance.batches == [["a"]]
    await pool.drain()


async def test_the_caller_of_run_is_not_notified_when_the_instance_is_done_at_once() -> None:
    """It goes on starting by itself; being called back, each would nest in the one before."""
    instance, calls = Immediate(), Calls()
    pool = InstancePool([instance], calls)
    pool.run(instance, [make_inference()])
    assert pool.idle() is instance
    assert calls.count == 0


async def test_a_caller_that_leaves_does_not_break_off_an_execution() -> None:
    instance, inference = FakeInstance(held=True), make_inference("a")
    pool = _pool(instance)

    async def call() -> None:
        pool.run(instance, [inference])
        await asyncio.Event().wait()

    caller = asyncio.ensure_future(call())
    await turns()
    caller.cancel()
    instance.release()
    assert await marks(inference.stream) == ["a"]
    await asyncio.wait([caller])


async def test_draining_waits_for_every_execution() -> None:
    instances = FakeInstance("a", held=True), FakeInstance("b", held=True)
    pool = _pool(*instances)
    for instance in instances:
        pool.run(instance, [make_inference()])
    draining = asyncio.ensure_future(pool.drain())
    await turns()
    instances[0].release()
    await turns()
    assert not draining.done()
    instances[1].release()
    await asyncio.wait_for(draining, 20)


async def test_an_idle_pool_is_drained() -> None:
    await asyncio.wait_for(_pool(FakeInstance()).drain(), 20)


@pytest.mark.contract("M-06")
async def test_who_is_no_longer_of_the_pool_gets_nothing_and_finishes_what_it_has() -> None:
    leaving, coming, calls = FakeInstance("a", held=True), FakeInstance("b"), Calls()
    pool, inference = InstancePool([leaving], calls), make_inference("x")
    pool.run(leaving, [inference])
    pool.replace([coming])
    assert calls.count == 1  # for what waits
    assert [pool.idle(), pool.idle()] == [coming, coming]
    assert leaving.on_available is None
    leaving.release()
    assert await marks(inference.stream) == ["x"]
    await pool.drain()


class Refusing(FakeInstance):
    """Cannot even begin."""

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        raise ValueError("cannot be sent")


async def test_a_batch_that_cannot_be_begun_fails_and_leaves_the_instance_free() -> None:
    instance, calls = Refusing(), Calls()
    pool, batch = InstancePool([instance], calls), [make_inference(id) for id in "ab"]
    pool.run(instance, batch)
    for inference in batch:
        with pytest.raises(InternalError, match="ValueError: cannot be sent"):
            await marks(inference.stream)
    assert pool.idle() is instance
    await asyncio.wait_for(pool.drain(), 20)
