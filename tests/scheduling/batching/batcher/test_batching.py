"""Which requests make a batch, and how long it waits.

Times are virtual: a loop that need not wait does not.
"""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from fakes import FakeInstance, in_virtual_time, marks, turns
from penstock.scheduling.batching.batch_queue import BatchPolicy
from penstock.scheduling.batching.dynamic_batcher import BatcherSettings, DynamicBatcher
from scheduling.batching.batcher.scheduled import EAGER, PATIENT, scheduled

# -- batching -------------------------------------------------------------------------------------


@pytest.mark.contract("D-02")
async def test_requests_of_one_turn_are_batched_without_a_delay() -> None:
    instance = FakeInstance()
    inferences = scheduled(DynamicBatcher(EAGER, [instance]), "abc")
    assert [await marks(i.stream) for i in inferences] == [["a"], ["b"], ["c"]]
    assert instance.batches == [["a", "b", "c"]]


@pytest.mark.contract("D-02")
async def test_requests_that_come_while_the_instance_is_busy_are_batched() -> None:
    instance = FakeInstance(held=True)
    batcher = DynamicBatcher(EAGER, [instance])
    for id in "abcd":
        scheduled(batcher, id)
        await turns()
    instance.release()
    await turns(10)
    assert instance.batches == [["a"], ["b", "c", "d"]]


@pytest.mark.contract("D-17")
async def test_an_idle_instance_takes_the_next_batch_while_others_are_busy() -> None:
    instances = FakeInstance("x", held=True), FakeInstance("y", held=True)
    scheduled(DynamicBatcher(EAGER, instances), "abcdef")
    await turns()
    assert [instance.batches for instance in instances] == [[["a", "b", "c", "d"]], [["e", "f"]]]


async def test_an_instance_that_is_not_serial_is_given_batches_as_they_form() -> None:
    instance = FakeInstance(serial=False, held=True)
    batcher = DynamicBatcher(EAGER, [instance])
    for ids in ("ab", "c"):
        scheduled(batcher, ids)
        await turns()
    assert (instance.batches, instance.running) == ([["a", "b"], ["c"]], 2)


async def test_requests_wait_for_an_instance_that_is_away() -> None:
    instance = FakeInstance()
    instance.go_away()
    scheduled(DynamicBatcher(EAGER, [instance]), "ab")
    await turns()
    assert instance.batches == []
    instance.come_back()
    await turns()
    assert instance.batches == [["a", "b"]]


# -- waiting --------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_batch_that_may_grow_waits_for_the_delay() -> None:
    instance = FakeInstance()
    (inference,) = scheduled(DynamicBatcher(PATIENT, [instance]), "a")
    await marks(inference.stream)
    assert instance.began == [pytest.approx(1.0)]


@in_virtual_time
async def test_a_later_request_does_not_postpone_a_batch() -> None:
    instance = FakeInstance()
    batcher = DynamicBatcher(PATIENT, [instance])
    scheduled(batcher, "a")
    await asyncio.sleep(0.6)
    (last,) = scheduled(batcher, "b")
    await marks(last.stream)
    assert instance.batches == [["a", "b"]]
    assert instance.began == [pytest.approx(1.0)]


@in_virtual_time
async def test_a_request_that_fills_the_batch_ends_the_waiting() -> None:
    instance = FakeInstance()
    batcher = DynamicBatcher(PATIENT, [instance])
    scheduled(batcher, "abc")
    await asyncio.sleep(0.4)
    scheduled(batcher, "d")
    await asyncio.sleep(5)
    assert instance.batches == [["a", "b", "c", "d"]]
    assert instance.began == [pytest.approx(0.4)]


@in_virtual_time
async def test_whoever_waited_long_enough_meanwhile_leaves_when_an_instance_is_idle() -> None:
    instance = FakeInstance(seconds=3.0)
    batcher = DynamicBatcher(PATIENT, [instance])
    scheduled(batcher, "abcd")
    await asyncio.sleep(0.5)
    scheduled(batcher, "ef")
    await asyncio.sleep(9)
    assert instance.batches[1] == ["e", "f"]
    assert instance.began[1] == pytest.approx(3.0)


@in_virtual_time
async def test_the_next_batch_waits_from_its_own_first_request() -> None:
    instance = FakeInstance()
    batcher = DynamicBatcher(PATIENT, [instance])
    scheduled(batcher, "a")
    await asyncio.sleep(2)
    scheduled(batcher, "b")
    await asyncio.sleep(2)
    assert instance.began == [pytest.approx(1.0), pytest.approx(3.0)]


def test_a_delay_too_short_for_a_timer_is_not_spent_spinning() -> None:
    """uvloop runs a timer of less than half a millisecond in the next turn, again and again."""

    instance = FakeInstance()

    async def call() -> None:
        batcher = DynamicBatcher(
            BatcherSettings(BatchPolicy(4, max_queue_delay=0.0002)), [instance]
        )
        for id in "abcde":
            await asyncio.sleep(0.001)
            (inference,) = scheduled(batcher, id)
            await marks(inference.stream)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(call())
    assert instance.asked < 50
