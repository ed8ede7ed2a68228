"""A cancelled request does not affect others. Times are virtual."""

from __future__ import annotations

import asyncio

import pytest

from fakes import FakeInstance, in_virtual_time, marks, turns
from penstock.core.errors import RequestCancelledError, UnavailableError
from penstock.inflight.statistics import Statistics
from penstock.scheduling.batching.dynamic_batcher import DynamicBatcher
from scheduling.batching.batcher.scheduled import EAGER, PATIENT, scheduled


@pytest.mark.contract("N-10")
@in_virtual_time
async def test_a_request_cancelled_in_a_forming_batch_leaves_its_neighbours_answered() -> None:
    instance, statistics = FakeInstance(), Statistics()
    inferences = scheduled(DynamicBatcher(PATIENT, [instance]), "abc", statistics)
    await asyncio.sleep(0.5)
    inferences[1].stream.close()
    assert await marks(inferences[0].stream) == ["a"]
    assert await marks(inferences[2].stream) == ["c"]
    assert instance.batches == [["a", "c"]]
    assert statistics.pending == statistics.in_flight == 0


@pytest.mark.contract("N-10")
@in_virtual_time
async def test_a_batch_that_everybody_left_is_never_executed() -> None:
    instance = FakeInstance()
    inferences = scheduled(DynamicBatcher(PATIENT, [instance]), "ab")
    await asyncio.sleep(0.5)
    for inference in inferences:
        inference.stream.close()
    await asyncio.sleep(5)
    assert instance.batches == []


@pytest.mark.contract("D-15", "N-10")
async def test_a_request_cancelled_while_all_are_busy_never_reaches_an_instance() -> None:
    instance = FakeInstance(held=True)
    batcher = DynamicBatcher(EAGER, [instance])
    scheduled(batcher, "a")
    await turns()
    leaving, staying = scheduled(batcher, "bc")
    await turns()
    leaving.stream.close()
    instance.release()
    assert await marks(staying.stream) == ["c"]
    assert instance.batches == [["a"], ["c"]]


async def test_a_request_cancelled_while_its_batch_executes_leaves_the_others_answered() -> None:
    instance, statistics = FakeInstance(held=True), Statistics()
    leaving, staying = scheduled(DynamicBatcher(EAGER, [instance]), "ab", statistics)
    await turns()
    leaving.stream.close()
    assert (statistics.pending, statistics.in_flight) == (0, 1)
    instance.release()
    assert await marks(staying.stream) == ["b"]
    with pytest.raises(RequestCancelledError):
        await marks(leaving.stream)


async def test_abandoned_requests_fail_and_later_ones_are_batched() -> None:
    instance = FakeInstance()
    batcher = DynamicBatcher(EAGER, [instance])
    first, second = scheduled(batcher, "ab")
    batcher.abandon(UnavailableError("all is lost"))
    for inference in (first, second):
        with pytest.raises(UnavailableError, match="all is lost"):
            await marks(inference.stream)
    (third,) = scheduled(batcher, "c")
    assert await marks(third.stream) == ["c"]
    assert instance.batches == [["c"]]


async def test_draining_waits_for_what_executes() -> None:
    instance = FakeInstance(held=True)
    batcher = DynamicBatcher(EAGER, [instance])
    scheduled(batcher, "ab")
    await turns()
    draining = asyncio.ensure_future(batcher.drain())
    await turns()
    assert not draining.done()
    instance.release()
    await asyncio.wait_for(draining, 20)
