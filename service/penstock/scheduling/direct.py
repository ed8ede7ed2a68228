"""The default scheduler: every request executes alone, in order of arrival (contract D-01)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.core.errors import InferenceError
from penstock.core.inference import Inference
from penstock.scheduling import Instance
from penstock.scheduling.pool import InstancePool


class DirectScheduler:
    """To the next idle instance, one request at a time."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self._queue: deque[Inference] = deque()
        self._pool = InstancePool(instances, self._dispatch)

    def schedule(self, inference: Inference) -> None:
        self._queue.append(inference)
        self._dispatch()

    def abandon(self, error: InferenceError) -> None:
        waiting, self._queue = self._queue, deque()
        for inference in waiting:
            inference.fail(error)

    async def drain(self) -> None:
        await self._pool.drain()

    def _dispatch(self) -> None:
        while self._queue:
            if self._queue[0].abandoned:
                self._queue.popleft()
                continue
            instance = self._pool.idle()
            if instance is None:
                return
            self._pool.run(instance, (self._queue.popleft(),))
