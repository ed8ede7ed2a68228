"""`ModelReader`: reads the repository files of models to load, and of the models they need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.core.errors import InferenceError
from penstock.models.loading.dependencies import needs_of
from penstock.models.loading.redaction import redacted
from penstock.models.repository.override import ModelOverride, ScratchFolders
from penstock.models.repository.repository import ModelFiles, ModelRepository

Overrides = Mapping[str, ModelOverride | None]
Polled = dict[str, ModelFiles | InferenceError]
"""Models by name: their files, or why these cannot be loaded."""


class ModelReader:
    """Reads the files of models to load, and of the models that they need.

    `serves` returns whether a model serves already.
    """

    def __init__(
        self, repository: ModelRepository, folders: ScratchFolders, serves: Callable[[str], object]
    ) -> None:
        self._repository = repository
        self._folders = folders
        self._serves = serves

    @asynccontextmanager
    async def polled(
        self, overrides: Overrides, unreadable: dict[str, InferenceError]
    ) -> AsyncIterator[Polled]:
        """The files, or the read error, of models and of those that they need, by name.

        A needed model that serves and cannot be read again, or whose files came with an earlier
        request, is left as it is. Files of this request that no model retains are removed at the
        end.

        `unreadable` gets the read errors. The models that are in it are not read again, so that
        each error is logged once however often a load looks.
        """
        polled: Polled = {}
        try:
            todo = set(overrides)
            while todo:
                async with asyncio.TaskGroup() as reads:  # waits for all, also on failure
                    for name in todo - unreadable.keys():
                        reads.create_task(self._read(name, overrides.get(name), polled))
                polled |= {name: unreadable[name] for name in todo & unreadable.keys()}
                todo = needs(polled, todo) - polled.keys() - set(self._folders.uploaded())
            unreadable |= {n: e for n, e in polled.items() if isinstance(e, InferenceError)}
            yield {
                name: files
                for name, files in polled.items()
                if name in overrides or isinstance(files, ModelFiles) or not self._serves(name)
            }
        finally:
            _remove_unused(polled)

    async def _read(self, name: str, override: ModelOverride | None, polled: Polled) -> None:
        parent = self._folders.parent() if override is not None and override.files else None
        read = asyncio.to_thread(self._read_now, name, override, parent)
        reading = asyncio.get_running_loop().create_task(read)
        try:
            polled[name] = await asyncio.shield(reading)
        except asyncio.CancelledError:  # the thread goes on, and may still write files
            await asyncio.wait([reading])
            polled[name] = reading.result()
            raise

    def _read_now(
        self, name: str, override: ModelOverride | None, parent: Path | None
    ) -> ModelFiles | InferenceError:
        try:
            return self._repository.read(name, override, parent)
        except InferenceError as error:
            return redacted(error)


def needs(polled: Polled, names: Iterable[str]) -> set[str]:
    """The models that `names` need, as far as their files could be read."""
    found = (polled[name] for name in names)
    configs = (files.config for files in found if isinstance(files, ModelFiles))
    return {need for config in configs for need in needs_of(config)}


def _remove_unused(polled: Polled) -> None:
    for files in polled.values():
        if isinstance(files, ModelFiles) and files.folder is not None and not files.folder.retained:
            files.folder.remove()
