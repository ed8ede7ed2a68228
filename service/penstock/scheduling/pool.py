"""Which instances of a model are idle, and the executions that run on the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.core.inference import Inference
from penstock.scheduling import Instance


class InstancePool:
    """The instances that share one queue. Calls `on_idle` whenever one may take a batch."""

    def __init__(self, instances: Sequence[Instance], on_idle: Callable[[], None]) -> None:
        self._instances = list(instances)
        self._busy: set[Instance] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._on_idle = on_idle
        self._next = 0
        for instance in self._instances:
            instance.on_available = on_idle

    def idle(self) -> Instance | None:
        """An instance that can take a batch now; they take turns."""
        count = len(self._instances)
        for offset in range(count):
            at = (self._next + offset) % count
            instance = self._instances[at]
            if instance.available and instance not in self._busy:
                self._next = at + 1
                return instance
        return None

    def run(self, instance: Instance, batch: Sequence[Inference]) -> None:
        """Start an execution. The pool owns it: a caller that leaves cannot break it off."""
        if instance.serial:
            self._busy.add(instance)
        task = asyncio.get_running_loop().create_task(self._execute(instance, batch))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _execute(self, instance: Instance, batch: Sequence[Inference]) -> None:
        # Some may have left between the decision and this task's first step.
        wanted = [inference for inference in batch if not inference.abandoned]
        try:
            if wanted:
                await instance.execute(wanted)
        finally:
            self._busy.discard(instance)
            self._on_idle()

    async def drain(self) -> None:
        """Wait until no execution runs."""
        while self._running:
            await asyncio.wait(self._running)
