"""Overrides: configuration and files of a load request, and their scratch folders (X-17, X-18)."""

from __future__ import annotations

import asyncio
import errno
import os.path
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.core.errors import InvalidRequestError, ModelLoadError, shortened
from penstock.core.file_names import clash, wrong_name

CONFIG = "config"
VERSIONS = "versions"
FILE = "file:"
SCRATCH = "penstock-model-"
"""The beginning of the names of scratch folders."""

_LONGEST_CONFIG = 1 << 20
"""Characters of a configuration: it is parsed in one piece."""

# Some file systems take shorter names than most.
_IMPOSSIBLE_PATHS = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)


@dataclass(frozen=True, slots=True)
class ModelOverride:
    """The content of a load request: JSON configuration, files by `file:<path in the model>`.

    `versions` are to serve instead of those that the policy selects, if there are any. The
    configuration of one that is not `trusted` may name no code and no paths of its own.
    """

    config: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    trusted: bool = True
    versions: frozenset[int] = frozenset()

    @property
    def brings(self) -> bool:
        """Whether a model is loaded with what its repository has not."""
        return self.config is not None or bool(self.files)

    @classmethod
    def from_parameters(
        cls, parameters: Mapping[str, str | bytes], *, trusted: bool = True
    ) -> ModelOverride | None:
        """The override that load parameters describe; `None` without parameters."""
        config: str | None = None
        files: dict[str, bytes] = {}
        versions: frozenset[int] = frozenset()
        for name, value in parameters.items():
            if name == CONFIG and isinstance(value, str):
                if len(value) > _LONGEST_CONFIG:
                    raise InvalidRequestError(
                        f"load parameter 'config' has more than {_LONGEST_CONFIG} characters"
                    )
                config = value
            elif name == VERSIONS and isinstance(value, str):
                versions = parse_versions(value)
            elif name.startswith(FILE) and isinstance(value, bytes):
                files[name] = value
            else:
                raise InvalidRequestError(f"unrecognized load parameter '{name}'.")
        return cls(config, files, trusted, versions) if parameters else None

    def write(self, folder: Path) -> None:
        """Write the files below `folder`; raises `ModelLoadError` for a path that cannot be."""
        names = {name: _inside(name) for name in self.files}
        if name := clash(names.values()):
            raise ModelLoadError(
                f"Invalid file path '{FILE}{name}': it lies below another file, or is its folder"
            )
        for name, content in self.files.items():
            path = folder / names[name]
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            except OSError as error:
                if error.errno not in _IMPOSSIBLE_PATHS:
                    raise
                raise ModelLoadError(f"Invalid file path '{name}': {error.strerror}") from error


def parse_versions(text: str) -> frozenset[int]:
    """The versions that a load or an unload names, such as `1,3`; Penstock's own (S126)."""
    numbers = [number.strip() for number in text.split(",")]
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise InvalidRequestError(
            f"parameter 'versions' is to be numbers with commas, not '{shortened(text)}'"
        )
    return frozenset(map(int, numbers))


def _inside(name: str) -> str:
    """The path of a parameter's file below the model's folder; a leading slash is ignored."""
    path = os.path.normpath(f"./{name.removeprefix(FILE)}")
    if path == "." or path.split("/")[0] == ".." or "\0" in path:
        raise ModelLoadError(
            f"Invalid file parameter '{name}' with normalized path '{path}' must stay within"
            " model directory."
        )
    if wrong := wrong_name(path):
        raise ModelLoadError(f"Invalid file path '{name}': {wrong}")
    return path


class ScratchFolder:
    """A temporary folder of a model's files, reference-counted and removed with the last.

    `uploaded` says whether they came with a load request; else they can be read again. `root` is
    what is removed.
    """

    def __init__(self, path: Path, *, root: Path | None = None, uploaded: bool = False) -> None:
        self.path, self.uploaded = path, uploaded
        self._root = root or path
        self._references = 0

    @classmethod
    def create(cls, parent: Path | None = None) -> ScratchFolder:
        """A new one for a load request, in `parent` or the system's folder for such."""
        return cls(Path(tempfile.mkdtemp(prefix=SCRATCH, dir=parent)), uploaded=True)

    @property
    def retained(self) -> bool:
        return self._references > 0

    def retain(self) -> None:
        """Count a reference."""
        self._references += 1

    async def release(self) -> None:
        """Drop a reference; removes the folder with the last one."""
        self._references -= 1
        if not self._references:
            await asyncio.to_thread(self.remove)

    def remove(self) -> None:
        """Remove the folder, whatever references it."""
        shutil.rmtree(self._root, ignore_errors=True)


class ScratchFolders:
    """The temporary folders that models were loaded from, by model.

    `parent` returns the folder to create them in.
    """

    def __init__(self, parent: Callable[[], Path] | None = None) -> None:
        self._parent = parent
        self._folders: dict[str, ScratchFolder] = {}

    def parent(self) -> Path | None:
        """The folder to create new ones in; `None` for the system's temporary folder."""
        return None if self._parent is None else self._parent()

    def uploaded(self) -> list[str]:
        """Models whose files came with a load request."""
        return [name for name, folder in self._folders.items() if folder.uploaded]

    async def keep(self, name: str, folder: ScratchFolder | None) -> None:
        """Retain the folder of a model until the model is reloaded or unloaded."""
        former = self._folders.pop(name, None)
        if folder is not None:
            folder.retain()
            self._folders[name] = folder
        if former is not None:
            await former.release()

    async def release(self, names: Iterable[str] | None = None) -> None:
        """Release the folders of models, of all by default."""
        for name in list(self._folders) if names is None else names:
            if folder := self._folders.pop(name, None):
                await folder.release()
