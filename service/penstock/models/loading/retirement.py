"""`Retirement`: graceful shutdown of models, a task each: drain the requests, then stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Coroutine, Iterable
from typing import Any

from penstock.models.serving.catalog import UNLOADED, Versions, VersionState
from penstock.models.serving.loaded_model import LoadedModel

logger = logging.getLogger(__name__)


class Retirement:
    """Stops models once their requests in flight are complete; owns the tasks that wait.

    Who has instances stopped waits for the end of that, `patience` seconds at most.
    """

    def __init__(self, patience: float) -> None:
        self._tasks: dict[asyncio.Task[None], LoadedModel] = {}
        self._awaited: set[asyncio.Task[None]] = set()
        self._patience = patience

    def models(self) -> Iterable[LoadedModel]:
        """Models that are being stopped."""
        return list(self._tasks.values())

    def unload(self, name: str, versions: Versions, keep: Container[int] = ()) -> None:
        """Unload all ready versions but `keep`; their requests in flight complete (G-13)."""
        for version, model in versions.ready().items():
            if version not in keep:
                versions.statuses[version].move(VersionState.UNLOADING)
                work = self._unload(name, version, versions, model)
                task = versions.leaving[version] = self._start(model, work)
                if not model.busy:
                    self._awaited.add(task)

    def retire(self, model: LoadedModel, *, awaited: bool = False) -> None:
        """Stop a model that was replaced, or never served, or removed instances: `awaited`."""
        task = self._start(model, self._stop(model))
        if awaited:
            self._awaited.add(task)

    async def finalized(self, names: Container[str]) -> None:
        """Wait until removed instances, and unloaded models without requests, are finalized.

        What takes longer goes on in the background.
        """
        tasks = [task for task in self._awaited if self._tasks[task].config.name in names]
        if tasks:
            await asyncio.wait(tasks, timeout=self._patience)

    async def wait_stopped(self) -> None:
        """Wait until all of them are stopped."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def cancel(self) -> None:
        """Stop waiting for requests in flight."""
        for task in self._tasks:
            task.cancel()

    async def _unload(
        self, name: str, version: int, versions: Versions, model: LoadedModel
    ) -> None:
        await self._stop(model)
        versions.statuses[version].move(VersionState.UNAVAILABLE, UNLOADED)
        del versions.leaving[version]
        logger.info("successfully unloaded '%s' version %s", name, version)

    async def _stop(self, model: LoadedModel) -> None:
        try:
            await model.stop()
        except Exception:  # a backend may raise anything; the model is unloaded all the same
            logger.exception("finalizing '%s' failed", model.config.name)

    def _start(self, model: LoadedModel, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = model
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._awaited.discard(task)
