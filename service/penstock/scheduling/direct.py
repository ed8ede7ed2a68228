"""The default scheduler: a FIFO queue without batching (contract D-01)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from penstock.core.errors import InferenceError
from penstock.inflight.inference import Inference
from penstock.scheduling import Instance
from penstock.scheduling.pool import InstancePool


class DirectScheduler:
    """Gives each request alone to the next idle instance, in order of arrival."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self._queue: OrderedDict[Inference, None] = OrderedDict()
        self._pool = InstancePool(instances, self._dispatch)

    def schedule(self, inference: Inference) -> None:
        instance = None if self._queue else self._pool.idle()
        if instance is not None:
            self._pool.run(instance, (inference,))
            if self._queue:  # the instance may be done, and new requests queued, already
                self._dispatch()
            return
        self._queue[inference] = None
        inference.on_end = partial(self._queue.pop, inference, None)
        self._dispatch()

    def abandon(self, error: InferenceError) -> None:
        for inference in list(self._queue):
            inference.fail(error)

    async def drain(self) -> None:
        await self._pool.drain()

    def resize(self, instances: Sequence[Instance]) -> None:
        self._pool.replace(instances)

    def _dispatch(self) -> None:
        while self._queue:
            instance = self._pool.idle()
            if instance is None:
                return
            inference, _ = self._queue.popitem(last=False)
            inference.on_end = None
            self._pool.run(instance, (inference,))
