"""Cache hits, and misses that go to the next scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from fakes import make_request, make_response, mark, marks, turns
from penstock.caching import CacheStatistics, Found
from penstock.caching.key import CacheKeys
from penstock.caching.local import LocalCache
from penstock.core.errors import InferenceError, RejectedError, UnavailableError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import Tensor
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.scheduling.cached import CachedScheduler


class Answering:
    """A scheduler whose instance answers at once, in the way it is told."""

    def __init__(self, answer: Callable[[Inference], None] | None = None) -> None:
        self.scheduled: list[Inference] = []
        self.abandoned: list[InferenceError] = []
        self.drained = 0
        self._answer = answer or _respond

    def schedule(self, inference: Inference) -> None:
        self.scheduled.append(inference)
        self._answer(inference)

    def abandon(self, error: InferenceError) -> None:
        self.abandoned.append(error)

    async def drain(self) -> None:
        self.drained += 1


class Remote:
    """A cache that holds nothing, and tells so when it is asked to."""

    shared = True

    def __init__(self) -> None:
        self.statistics = CacheStatistics()
        self.asked: list[Found] = []

    def lookup(self, key: bytes, found: Found) -> None:
        self.asked.append(found)

    def insert(self, key: bytes, response: InferenceResponse, done: Callable[[], None]) -> None:
        done()

    async def close(self) -> None:
        pass


def _respond(inference: Inference) -> None:
    inference.started(inference.start + 1)
    inference.stream.send(make_response("made", final=True))


def _cached(inner: Answering, cache: LocalCache | Remote | None = None) -> CachedScheduler:
    return CachedScheduler(inner, cache or LocalCache(100_000), CacheKeys("m", 1))


def _ask(
    scheduler: CachedScheduler,
    statistics: Statistics | None = None,
    request: InferenceRequest | None = None,
) -> Inference:
    inference = Inference(request or make_request(), 1, statistics or Statistics(), "1")
    scheduler.schedule(inference)
    return inference


@pytest.mark.contract("RC-04")
async def test_an_equal_request_is_answered_without_an_execution() -> None:
    inner = Answering()
    scheduler = _cached(inner)
    asked = [_ask(scheduler) for _ in range(3)]
    assert [await marks(inference.stream) for inference in asked] == [["made"]] * 3
    assert inner.scheduled == asked[:1]


@pytest.mark.contract("RC-04")
async def test_equal_requests_that_are_in_flight_together_all_execute() -> None:
    inner = Answering(lambda _: None)
    scheduler = _cached(inner)
    asked = [_ask(scheduler), _ask(scheduler)]
    assert inner.scheduled == asked


@pytest.mark.contract("RC-08")
async def test_a_hit_is_a_success_without_inference_and_execution() -> None:
    statistics = Statistics()
    scheduler = _cached(Answering())
    _ask(scheduler)
    _ask(scheduler, statistics)
    assert statistics.success.count == statistics.queue.count == statistics.cache_hit.count == 1
    assert statistics.cache_hit.ns > 0
    assert (statistics.inference_count, statistics.execution_count) == (0, 0)
    assert statistics.compute_infer.count == statistics.cache_miss.count == 0
    assert (statistics.pending, statistics.in_flight) == (0, 0)


@pytest.mark.contract("RC-09")
async def test_a_miss_holds_the_time_of_lookup_and_insertion() -> None:
    class Slow(LocalCache):
        def insert(self, key: bytes, response: InferenceResponse, done: Callable[[], None]) -> None:
            looked_up.append(statistics.cache_miss.ns)
            super().insert(key, response, done)

    statistics, looked_up = Statistics(), list[int]()
    _ask(_cached(Answering(), Slow(100_000)), statistics)
    assert statistics.cache_miss.count == 1
    assert 0 < looked_up[0] < statistics.cache_miss.ns
    assert (statistics.success.count, statistics.inference_count) == (1, 1)


@pytest.mark.parametrize(
    "fail",
    [
        lambda inference: inference.fail(UnavailableError("no")),
        lambda inference: inference.stream.send(
            InferenceResponse(final=True, error=UnavailableError("no"))
        ),
    ],
)
async def test_failures_are_not_kept(fail: Callable[[Inference], None]) -> None:
    inner = Answering(fail)
    scheduler = _cached(inner)
    _ask(scheduler)
    _ask(scheduler)
    assert len(inner.scheduled) == 2


async def test_the_response_of_the_model_is_cached() -> None:
    """Each request then changes it as it likes: to a shape, to classes."""
    scheduler = _cached(Answering())
    first, second = (Inference(make_request(), 1, Statistics(), "1") for _ in range(2))
    first.stream.transform = lambda r: make_response(f"first {mark(r)}", final=True)
    second.stream.transform = lambda r: make_response(f"second {mark(r)}", final=True)
    for inference in (first, second):
        scheduler.schedule(inference)
    assert await marks(first.stream) == ["first made"]
    assert await marks(second.stream) == ["second made"]


async def test_who_leaves_during_a_remote_lookup_is_not_scheduled() -> None:
    inner, cache, statistics = Answering(), Remote(), Statistics()
    inference = _ask(_cached(inner, cache), statistics)
    inference.stream.close()
    cache.asked[0](None)
    assert inner.scheduled == []
    assert (statistics.pending, statistics.in_flight) == (0, 0)


async def test_a_refusal_after_a_remote_lookup_reaches_the_client() -> None:
    def refuse(inference: Inference) -> None:
        raise RejectedError("Exceeds maximum queue size")

    cache = Remote()
    inference = _ask(_cached(Answering(refuse), cache))
    cache.asked[0](None)
    with pytest.raises(RejectedError, match="Exceeds maximum"):
        await marks(inference.stream)


async def test_large_inputs_are_hashed_off_the_loop() -> None:
    large = Tensor.from_numpy(np.zeros((1, 1 << 20), np.int32))
    inner = Answering()
    scheduler = _cached(inner)
    first = _ask(scheduler, request=make_request(inputs={"IN": large}))
    assert inner.scheduled == []
    assert await marks(first.stream) == ["made"]
    second = _ask(scheduler, request=make_request(inputs={"IN": large}))
    assert await marks(second.stream) == ["made"]
    assert inner.scheduled == [first]


async def test_draining_waits_for_what_is_being_hashed() -> None:
    large = Tensor.from_numpy(np.zeros((1, 1 << 20), np.int32))
    inner = Answering()
    scheduler = _cached(inner)
    inference = _ask(scheduler, request=make_request(inputs={"IN": large}))
    await asyncio.wait_for(scheduler.drain(), 20)
    await turns(1)
    assert inner.scheduled == [inference]
    assert inner.drained == 1


async def test_abandoning_reaches_what_waits() -> None:
    inner, error = Answering(), UnavailableError("gone")
    _cached(inner).abandon(error)
    assert inner.abandoned == [error]
