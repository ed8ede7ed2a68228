"""`RepositoryPoller`: loads and unloads models as the files of the repository change (M-03)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from penstock.models.repository.repository import ModelRepository
from penstock.server.server import InferenceServer

logger = logging.getLogger(__name__)

Snapshot = Mapping[str, Hashable]


class Difference(NamedTuple):
    """Models that are new or changed, and models that were removed."""

    changed: frozenset[str]
    gone: frozenset[str]


def difference(before: Snapshot, after: Snapshot) -> Difference:
    """The difference between two snapshots of a repository."""
    changed = (name for name, files in after.items() if before.get(name) != files)
    return Difference(frozenset(changed), frozenset(before.keys() - after.keys()))


class RepositoryPoller:
    """Polls a repository and has the server load and unload what has changed.

    A model is reloaded only when its files change, even if it failed to load, but for one whose
    files could not be read; one that is in two repositories counts as removed.
    """

    def __init__(self, repository: ModelRepository, server: InferenceServer) -> None:
        self._repository = repository
        self._server = server
        self._seen: Snapshot = {}

    async def changes(self) -> Difference:
        """The changes since the last call."""
        before, self._seen = self._seen, await asyncio.to_thread(self._repository.states)
        return difference(before, self._seen)

    async def poll(self) -> None:
        """Load and unload what has changed; errors go to the log."""
        changed, gone = await self.changes()
        await self._server.follow(changed, gone)

    @asynccontextmanager
    async def running(self, seconds: float) -> AsyncIterator[None]:
        """Poll every `seconds` while the context is open; never if 0."""
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
            except Exception:  # a bug must be logged, and must not end the polling
                logger.exception("polling the model repository failed")
