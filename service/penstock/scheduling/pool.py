"""`InstancePool`: the idle and busy instances of a model, and their running executions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.errors import as_inference_error
from penstock.inflight.inference import Inference
from penstock.scheduling import Instance


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
