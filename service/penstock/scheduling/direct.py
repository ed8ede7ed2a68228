"""The default scheduler, a FIFO queue without batching (contract D-01), and the instance pool.

All schedulers take their instances from such a pool.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.errors import InferenceError, as_inference_error
from penstock.inflight.inference import Inference
from penstock.scheduling import Instance


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


class InstancePool:
    """The instances that share one queue. Calls `on_idle` whenever one may have become idle."""

    def __init__(self, instances: Sequence[Instance], on_idle: Callable[[], None]) -> None:
        self._instances = list(instances)
        self._busy: set[Instance] = set()
        self._running = 0
        self._starting = False
        self._drained: asyncio.Event | None = None
        self._on_idle = on_idle
        self._next = 0
        for instance in self._instances:
            instance.on_available = on_idle

    def replace(self, instances: Sequence[Instance]) -> None:
        """Use these instances from now on; removed ones finish their executions."""
        for instance in self._instances:
            instance.on_available = None
        self._instances = list(instances)
        for instance in self._instances:
            instance.on_available = self._on_idle
        self._on_idle()

    def idle(self) -> Instance | None:
        """An idle instance, chosen round-robin; `None` if there is none."""
        count = len(self._instances)
        for offset in range(count):
            at = (self._next + offset) % count
            instance = self._instances[at]
            if instance not in self._busy and instance.available:
                self._next = at + 1
                return instance
        return None

    def run(
        self,
        instance: Instance,
        batch: Sequence[Inference],
        done: Callable[[], None] | None = None,
    ) -> None:
        """Start an execution; `done` is called when the instance may take the next batch.

        Cancelling a request of the batch does not interrupt it.
        """
        if instance.serial:
            self._busy.add(instance)
        self._running += 1
        self._starting = True
        try:
            instance.execute(batch, partial(self._done, instance, done))
        except Exception as error:  # a request may not be serializable
            for inference in batch:
                inference.fail(as_inference_error(error))
            self._done(instance, done)
        finally:
            self._starting = False

    def _done(self, instance: Instance, done: Callable[[], None] | None) -> None:
        if done is not None:
            done()
        self._busy.discard(instance)
        self._running -= 1
        if not self._running and self._drained is not None:
            self._drained.set()
        if not self._starting:  # the dispatch loop that called `run` goes on by itself
            self._on_idle()

    async def drain(self) -> None:
        """Wait until every instance has taken its batches: `done` was called for each execution."""
        while self._running:
            self._drained = asyncio.Event()
            await self._drained.wait()
