"""Following the repository: models come and go as their files do (contract M-03)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from penstock.models.repository.repository import ModelRepository
from penstock.models.repository.version_files import Fingerprint, fingerprint
from penstock.server.server import InferenceServer

logger = logging.getLogger(__name__)

Snapshot = Mapping[str, Fingerprint]


class Difference(NamedTuple):
    """Models that are new or not what they were, and models that are gone."""

    changed: frozenset[str]
    gone: frozenset[str]


def difference(before: Snapshot, after: Snapshot) -> Difference:
    """What happened to a repository between two looks at it."""
    changed = (name for name, files in after.items() if before.get(name) != files)
    return Difference(frozenset(changed), frozenset(before.keys() - after.keys()))


class RepositoryPoller:
    """Looks at a repository now and then, and has the server follow it.

    A model whose files do not change is left alone, whatever became of it; one that two
    repositories have counts as gone.
    """

    def __init__(self, repository: ModelRepository, server: InferenceServer) -> None:
        self._repository = repository
        self._server = server
        self._seen: Snapshot = {}

    async def look(self) -> Difference:
        """What has changed since the last look. Raises `OSError` for what cannot be read."""
        before, self._seen = self._seen, await asyncio.to_thread(self._snapshot)
        return difference(before, self._seen)

    async def poll(self) -> None:
        """Look, and load and unload what has changed; what goes wrong is in the log."""
        try:
            changed, gone = await self.look()
        except OSError as error:
            logger.error("failed to poll the model repository: %s", error)
            return
        await self._server.follow(changed, gone)

    @asynccontextmanager
    async def running(self, seconds: float) -> AsyncIterator[None]:
        """Poll every so many seconds meanwhile; never when there are none."""
        task = asyncio.create_task(self._run(seconds))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self, seconds: float) -> None:
        while seconds > 0:
            await asyncio.sleep(seconds)
            try:
                await self.poll()
            except Exception:  # a fault of ours must be seen in the log, and end nothing
                logger.exception("following the model repository failed")

    def _snapshot(self) -> Snapshot:
        return {path.name: fingerprint(path) for path in self._repository.models()}
