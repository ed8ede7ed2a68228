"""Queue policies: bounds, timeouts, priorities. Times are virtual."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from fakes import FakeInstance, in_virtual_time, make_inference, marks, turns
from penstock.core.errors import RejectedError
from penstock.inflight.statistics import FailureReason, Statistics
from penstock.scheduling.batching.batch_queue import BatchPolicy
from penstock.scheduling.batching.dynamic_batcher import BatcherSettings, DynamicBatcher
from penstock.scheduling.batching.priority import LevelPolicy, PriorityLevels
from scheduling.batching.batcher.scheduled import EAGER, scheduled


def _limited(**limits: Any) -> BatcherSettings:
    return BatcherSettings(BatchPolicy(1), PriorityLevels(default_policy=LevelPolicy(**limits)))


@pytest.mark.contract("D-11", "SEC-10")
async def test_a_full_queue_rejects_requests_until_one_leaves() -> None:
    instance, statistics = FakeInstance(held=True), Statistics()
    batcher = DynamicBatcher(_limited(max_queue_size=2), [instance])
    scheduled(batcher, "a", statistics)
    await turns()
    waiting = scheduled(batcher, "bc", statistics)
    with pytest.raises(RejectedError, match=r"^\[request id: d\] Exceeds maximum queue size$"):
        scheduled(batcher, "d", statistics)
    with pytest.raises(RejectedError, match=r"^\[request id: <id_unknown>\] Exceeds maximum"):
        batcher.schedule(make_inference())
    waiting[0].stream.close()
    scheduled(batcher, "e", statistics)
    instance.release()
    await turns(20)
    assert instance.batches == [["a"], ["c"], ["e"]]


@pytest.mark.contract("D-12", "D-16")
@in_virtual_time
async def test_a_request_whose_time_is_up_is_rejected_though_all_instances_are_busy() -> None:
    instance, statistics = FakeInstance(seconds=9.0), Statistics()
    batcher = DynamicBatcher(_limited(timeout=2.0), [instance])
    first, second = scheduled(batcher, "ab", statistics)
    with pytest.raises(RejectedError, match=r"^Request timeout expired$"):
        await marks(second.stream)
    assert asyncio.get_running_loop().time() == pytest.approx(2.0)
    assert await marks(first.stream) == ["a"]
    assert statistics.failures[FailureReason.REJECTED] == 1
    assert statistics.pending == statistics.in_flight == 0


@pytest.mark.contract("D-12", "D-16")
@in_virtual_time
async def test_a_request_in_a_forming_batch_expires_before_the_delay_is_up() -> None:
    instance = FakeInstance()
    policy = BatchPolicy(4, max_queue_delay=5.0)
    levels = PriorityLevels(default_policy=LevelPolicy(timeout=9.0, overridable=True))
    batcher = DynamicBatcher(BatcherSettings(policy, levels), [instance])
    (stays,) = scheduled(batcher, "a")
    hurried = make_inference("b", timeout=1_000_000)
    batcher.schedule(hurried)
    with pytest.raises(RejectedError):
        await marks(hurried.stream)
    assert asyncio.get_running_loop().time() == pytest.approx(1.0)
    assert await marks(stays.stream) == ["a"]
    assert instance.began == [pytest.approx(5.0)]


@pytest.mark.contract("D-13")
@in_virtual_time
async def test_a_delayed_request_is_served_after_those_that_came_later() -> None:
    instance = FakeInstance(seconds=3.0)
    batcher = DynamicBatcher(_limited(timeout=2.0, delays=True), [instance])
    scheduled(batcher, "ab")
    await asyncio.sleep(2.5)
    scheduled(batcher, "c")
    await asyncio.sleep(20)
    assert instance.batches == [["a"], ["c"], ["b"]]


@pytest.mark.contract("D-09")
async def test_more_urgent_requests_are_executed_first() -> None:
    instance = FakeInstance()
    batcher = DynamicBatcher(BatcherSettings(BatchPolicy(1), PriorityLevels(3, 2)), [instance])
    for id, priority in (("a", 3), ("b", 0), ("c", 1), ("d", 9)):
        batcher.schedule(make_inference(id, priority=priority))
    await turns(20)
    assert instance.batches == [["c"], ["b"], ["d"], ["a"]]


@in_virtual_time
async def test_the_lowest_priority_waits_no_longer_than_its_policy() -> None:
    """Others may keep the instance busy for ever."""
    instance = FakeInstance(seconds=1.0)
    levels = PriorityLevels(2, 2, policies={2: LevelPolicy(timeout=3.5)})
    batcher = DynamicBatcher(BatcherSettings(BatchPolicy(1), levels), [instance])
    for id in "abcdefgh":
        batcher.schedule(make_inference(id, priority=1))
    low = make_inference("low", priority=2)
    batcher.schedule(low)
    with pytest.raises(RejectedError, match="Request timeout expired"):
        await marks(low.stream)
    assert asyncio.get_running_loop().time() == pytest.approx(3.5)
    await batcher.drain()


@pytest.mark.contract("D-20")
async def test_the_first_batch_waits_for_the_number_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "3")
    instance = FakeInstance()
    batcher = DynamicBatcher(EAGER, [instance])
    scheduled(batcher, "ab")
    await turns()
    assert instance.batches == []
    for ids in ("c", "d"):
        scheduled(batcher, ids)
        await turns()
    assert instance.batches == [["a", "b", "c"], ["d"]]


@pytest.mark.contract("D-21")
async def test_batches_are_logged_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "penstock.scheduling.batching.dynamic_batcher")
    batcher = DynamicBatcher(EAGER, [FakeInstance(held=True)])
    for id, rows in (("a", 3), ("b", 1), ("c", 1)):
        batcher.schedule(make_inference(id, rows))
    await turns()
    assert caplog.messages == ["model 'm': batch of 2 requests, 4 rows; 1 wait"]
