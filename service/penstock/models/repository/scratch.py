"""Files that came with load requests, and how long they stay (contract X-18)."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path


class ScratchFolder:
    """A folder of files that came with a request; it goes when nobody holds it any more.

    It is made in `parent`, or where the system keeps such folders.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="penstock-model-", dir=parent))
        self._holders = 0

    @property
    def held(self) -> bool:
        return self._holders > 0

    def retain(self) -> None:
        """Keep the folder until `release`."""
        self._holders += 1

    async def release(self) -> None:
        """Need the folder no more."""
        self._holders -= 1
        if not self._holders:
            await asyncio.to_thread(self.remove)

    def remove(self) -> None:
        """Remove the folder, whoever holds it."""
        shutil.rmtree(self.path, ignore_errors=True)


class ScratchFolders:
    """The folders that models were loaded from, by model. `parent` names where they are made."""

    def __init__(self, parent: Callable[[], Path] | None = None) -> None:
        self._parent = parent
        self._folders: dict[str, ScratchFolder] = {}

    def parent(self) -> Path | None:
        """Where a new folder belongs; `None` for where the system keeps such folders."""
        return None if self._parent is None else self._parent()

    def names(self) -> list[str]:
        """Models whose files came with a request."""
        return list(self._folders)

    async def keep(self, name: str, folder: ScratchFolder | None) -> None:
        """Hold the folder that a model is loaded from, until it is loaded anew or unloaded."""
        former = self._folders.pop(name, None)
        if folder is not None:
            folder.retain()
            self._folders[name] = folder
        if former is not None:
            await former.release()

    async def release(self, names: Iterable[str]) -> None:
        """Need the folders of models no more."""
        for name in names:
            if folder := self._folders.pop(name, None):
                await folder.release()
