"""The default scheduler: one request at a time, in order of arrival."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Sequence

import pytest

from fakes import FakeInstance, answer, make_inference, marks, turns
from penstock.core.errors import UnavailableError
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.scheduling.direct import DirectScheduler


def _scheduled(
    scheduler: DirectScheduler, ids: str, statistics: Statistics | None = None
) -> list[Inference]:
    inferences = [make_inference(id, statistics=statistics) for id in ids]
    for inference in inferences:
        scheduler.schedule(inference)
    return inferences


@pytest.mark.contract("D-01")
async def test_every_request_executes_alone_in_order() -> None:
    instance = FakeInstance()
    inferences = _scheduled(DirectScheduler([instance]), "abc")
    answers = [await marks(inference.stream) for inference in inferences]
    assert answers == [["a"], ["b"], ["c"]]
    assert instance.batches == [["a"], ["b"], ["c"]]


async def test_an_instance_gets_one_request_at_a_time() -> None:
    instance = FakeInstance()
    scheduler = DirectScheduler([instance])
    _scheduled(scheduler, "abcd")
    await turns(30)
    assert (len(instance.batches), instance.most_running) == (4, 1)


@pytest.mark.contract("D-01")
@pytest.mark.contract("I-10", "D-01")
async def test_instances_work_at_the_same_time() -> None:
    instances = FakeInstance("x", held=True), FakeInstance("y", held=True)
    _scheduled(DirectScheduler(instances), "abc")
    await turns()
    assert [instance.batches for instance in instances] == [[["a"]], [["b"]]]


async def test_an_instance_that_is_not_serial_gets_everything_at_once() -> None:
    instance = FakeInstance(serial=False, held=True)
    _scheduled(DirectScheduler([instance]), "abc")
    await turns()
    assert instance.running == 3


async def test_a_request_cancelled_in_the_queue_never_reaches_an_instance() -> None:
    instance, statistics = FakeInstance(held=True), Statistics()
    first, second, third = _scheduled(DirectScheduler([instance]), "abc", statistics)
    await turns()
    second.stream.close()
    instance.release()
    assert await marks(third.stream) == ["c"]
    assert instance.batches == [["a"], ["c"]]
    assert statistics.pending == statistics.in_flight == 0
    assert await marks(first.stream) == ["a"]


async def test_a_request_cancelled_while_it_executes_frees_the_instance_in_the_end() -> None:
    instance = FakeInstance(held=True)
    first, second = _scheduled(DirectScheduler([instance]), "ab")
    await turns()
    first.stream.close()
    await turns()
    assert instance.batches == [["a"]]
    instance.release()
    assert await marks(second.stream) == ["b"]


async def test_requests_wait_for_an_instance_that_is_away() -> None:
    instance = FakeInstance()
    instance.go_away()
    (inference,) = _scheduled(DirectScheduler([instance]), "a")
    await turns()
    assert instance.batches == []
    instance.come_back()
    assert await marks(inference.stream) == ["a"]


async def test_abandoned_requests_fail_and_what_executes_goes_on() -> None:
    instance, statistics = FakeInstance(held=True), Statistics()
    scheduler = DirectScheduler([instance])
    first, second = _scheduled(scheduler, "ab", statistics)
    scheduler.abandon(UnavailableError("all is lost"))
    with pytest.raises(UnavailableError, match="all is lost"):
        await marks(second.stream)
    await turns()
    instance.release()
    assert await marks(first.stream) == ["a"]
    assert (instance.batches, statistics.pending) == ([["a"]], 0)


async def test_draining_waits_for_what_executes() -> None:
    instance = FakeInstance(held=True)
    scheduler = DirectScheduler([instance])
    _scheduled(scheduler, "a")
    draining = asyncio.ensure_future(scheduler.drain())
    await turns()
    assert not draining.done()
    instance.release()
    await asyncio.wait_for(draining, 20)


@pytest.mark.slow
async def test_a_cancelled_request_is_not_referenced_any_more() -> None:
    scheduler = DirectScheduler([FakeInstance(held=True)])
    _scheduled(scheduler, "a")
    (waiting,) = _scheduled(scheduler, "b")
    waiting.stream.close()
    gone = weakref.ref(waiting.request.inputs["IN"].numpy())
    del waiting
    gc.collect()
    assert gone() is None


@pytest.mark.contract("I-10")
async def test_a_slow_instance_holds_up_only_what_it_has() -> None:
    slow, quick = FakeInstance("a", held=True), FakeInstance("b")
    first, *others = _scheduled(DirectScheduler([slow, quick]), "abcdef")
    assert [await marks(inference.stream) for inference in others] == [[id] for id in "bcdef"]
    assert not first.abandoned
    slow.release()
    assert await marks(first.stream) == ["a"]


async def test_a_request_that_comes_from_within_an_execution_is_not_forgotten() -> None:
    class Asking(FakeInstance):
        """Is done at once, and asks the model itself meanwhile."""

        def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
            (inference,) = batch
            if inference.request.id == "a":
                scheduler.schedule(inner)
            answer(inference)
            done()

    scheduler = DirectScheduler([Asking()])
    outer, inner = make_inference("a"), make_inference("b")
    scheduler.schedule(outer)
    assert [await marks(outer.stream), await marks(inner.stream)] == [["a"], ["b"]]
