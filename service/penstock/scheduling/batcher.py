"""Dynamic batching: the waiting around `BatchQueue` (contract area M)."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from math import inf

from penstock.core.errors import InferenceError
from penstock.core.inference import Inference
from penstock.core.request import InferenceRequest
from penstock.scheduling import Instance
from penstock.scheduling.pool import InstancePool
from penstock.scheduling.queue import BatchPolicy, BatchQueue

_TICK = 0.001
"""What the timers of event loops resolve, in seconds; asked for less, uvloop spins."""


class DynamicBatcher:
    """Batches requests of one model for all its instances.

    Decisions are made once per loop turn, so whatever one read of a socket brought is batched
    together even without a queue delay.
    """

    def __init__(self, policy: BatchPolicy, instances: Sequence[Instance]) -> None:
        self._queue: BatchQueue[Inference] = BatchQueue(policy)
        self._pool = InstancePool(instances, self._dispatch)
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.Handle | None = None
        self._wake_at = inf

    def schedule(self, inference: Inference) -> None:
        request = inference.request
        self._queue.push(inference, inference.rows, signature(request), self._loop.time())
        self._wake_by(-inf)

    def abandon(self, error: InferenceError) -> None:
        for inference in self._queue.clear():
            inference.fail(error)

    async def drain(self) -> None:
        await self._pool.drain()

    def _wake_by(self, when: float) -> None:
        """Dispatch at `when` on the loop's clock, or earlier if that is already planned."""
        if when >= self._wake_at:
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wake_at = when
        if when == -inf:
            self._wake = self._loop.call_soon(self._woken)
        else:
            self._wake = self._loop.call_at(max(when, self._loop.time() + _TICK), self._woken)

    def _woken(self) -> None:
        self._wake, self._wake_at = None, inf
        self._dispatch()

    def _dispatch(self) -> None:
        while (instance := self._pool.idle()) is not None:
            now, due = self._loop.time(), self._queue.due()
            if due > now:
                if due < inf:
                    self._wake_by(due)
                return
            self._pool.run(instance, self._queue.pop(now))


def signature(request: InferenceRequest) -> Hashable:
    """What requests of one batch must have in common: inputs and their shapes per row (D-06)."""
    return frozenset((name, tensor.shape[1:]) for name, tensor in request.inputs.items())
