"""`CachedScheduler`: the response cache in front of another scheduler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from penstock.caching import ResponseCache
from penstock.caching.key import CacheKeys, hashed_bytes
from penstock.core.errors import InferenceError
from penstock.core.request import InferenceResponse
from penstock.inflight.inference import Inference
from penstock.scheduling import Scheduler
from penstock.scheduling.batching.dynamic_batcher import ResponseOrder

_LARGE = 1 << 20
"""Bytes of inputs that are worth hashing on a thread: about a millisecond of hashing."""


class CachedScheduler:
    """Answers from the cache, or queues the request and caches its response (RC-04).

    Equal requests that are in flight together all execute. Failures are not cached. With an `order`
    responses from the cache wait for those to earlier requests, too.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        cache: ResponseCache,
        keys: CacheKeys,
        order: ResponseOrder | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._cache = cache
        self._keys = keys
        self._order = order
        self._hashing: set[asyncio.Future[bytes]] = set()

    def schedule(self, inference: Inference) -> None:
        request = inference.request
        if self._order is not None:
            self._order.append(inference)
        begun = time.monotonic_ns()
        if hashed_bytes(request) < _LARGE:
            self._look_up(inference, begun, self._keys.key(request))
            return
        loop = asyncio.get_running_loop()
        hashing = loop.run_in_executor(None, self._keys.key, request)
        self._hashing.add(hashing)
        hashing.add_done_callback(partial(self._hashed, inference, begun))

    def abandon(self, error: InferenceError) -> None:
        self._scheduler.abandon(error)

    async def drain(self) -> None:
        if self._hashing:
            await asyncio.wait(self._hashing)
        await self._scheduler.drain()

    def _hashed(self, inference: Inference, begun: int, hashing: asyncio.Future[bytes]) -> None:
        self._hashing.discard(hashing)
        self._look_up(inference, begun, hashing.result())

    def _look_up(self, inference: Inference, begun: int, key: bytes) -> None:
        self._cache.lookup(key, partial(self._looked_up, inference, begun, key))

    def _looked_up(
        self, inference: Inference, begun: int, key: bytes, response: InferenceResponse | None
    ) -> None:
        if inference.abandoned:
            return
        if response is not None:
            inference.found_in_cache(begun, time.monotonic_ns())
            inference.stream.send(response)
            return
        missed = time.monotonic_ns()
        inference.statistics.cache_miss.add(missed - begun)
        if (timeline := inference.timeline) is not None:
            timeline.facts["cache"] = "miss"
            timeline.mark("CACHE_LOOKUP_START", begun)
            timeline.mark("CACHE_LOOKUP_END", missed)
        self._cache_response(inference, key)
        try:
            self._scheduler.schedule(inference)
        except InferenceError as error:
            inference.fail(error)

    def _cache_response(self, inference: Inference, key: bytes) -> None:
        """Insert the response into the cache when it is sent."""
        stream = inference.stream
        transform = stream.transform

        def insert(response: InferenceResponse) -> InferenceResponse:
            if response.error is None:
                done = _insertion_timer(inference, time.monotonic_ns())
                self._cache.insert(key, response, done)
            return response if transform is None else transform(response)

        stream.transform = insert


def _insertion_timer(inference: Inference, begun: int) -> Callable[[], None]:
    """A callback that adds the time of an insertion to that of its lookup (RC-09)."""
    missed = inference.statistics.cache_miss
    return lambda: missed.add(time.monotonic_ns() - begun, 0)
