"""Files and configurations that load requests carry, and the folders they are written to (X-17)."""

from __future__ import annotations

import asyncio
import os.path
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.core.errors import InvalidRequestError, ModelLoadError

CONFIG = "config"
FILE = "file:"


@dataclass(frozen=True, slots=True)
class ModelOverride:
    """A configuration as JSON, and files by `file:<path in the model's folder>`."""

    config: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, parameters: Mapping[str, str | bytes]) -> ModelOverride | None:
        """What the parameters of a load say; `None` when they say nothing."""
        config: str | None = None
        files: dict[str, bytes] = {}
        for name, value in parameters.items():
            if name == CONFIG and isinstance(value, str):
                config = value
            elif name.startswith(FILE) and isinstance(value, bytes):
                files[name] = value
            else:
                raise InvalidRequestError(f"unrecognized load parameter '{name}'.")
        return cls(config, files) if parameters else None

    def write(self, folder: Path) -> None:
        """Write the files below `folder`; raises `ModelLoadError` for one that would leave it."""
        for name, content in self.files.items():
            path = _inside(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _inside(folder: Path, name: str) -> Path:
    """Where the file of a parameter belongs; a leading slash means nothing."""
    root = os.path.normpath(folder)
    path = os.path.normpath(f"{root}/{name.removeprefix(FILE)}")
    if not path.startswith(f"{root}{os.sep}") or "\0" in path:
        raise ModelLoadError(
            f"Invalid file parameter '{name}' with normalized path '{path}' must stay within"
            " model directory."
        )
    return Path(path)


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
