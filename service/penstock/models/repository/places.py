"""Places of repositories: folders on the disk, and what lies elsewhere."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from penstock.core.errors import InternalError

logger = logging.getLogger(__name__)

BYTE_CODE = "__pycache__"

Fingerprint = frozenset[tuple[str, int, int]]
"""Path, modification time in nanoseconds and size of every file and folder below a folder.

Paths begin at the folder, so that they are the same wherever it was laid out.
"""


Needed = Callable[[str, int], bool]
"""Whether the content of a file is needed, by its path in the model's folder and its size."""


class RemotePlace(Protocol):
    """A repository that lies elsewhere; calls may take long, and raise `OSError`."""

    def folders(self) -> list[str]:
        """The names of the models' folders."""

    def take(self, folder: str, needed: Needed = ...) -> tuple[Path, Path | None] | None:
        """The folder of a model's files on the disk, and the one to remove after use, if any.

        `None` if there is no such model. What is not `needed` may be of zeros only, in its size.
        """

    def states(self) -> Mapping[str, Hashable]:
        """What each model is, for comparison: changed files are another state."""


Opener = Callable[[str], RemotePlace]
"""Opens the repository of an address."""


class LocalFolder:
    """A repository on the disk."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._ignored: set[Path] = set()
        if not self.path.is_dir():
            raise InternalError(f"failed to stat file {path}")

    def folders(self) -> list[str]:
        """The names of the models' folders; raises `OSError`."""
        return [folder.name for folder in subfolders(self.path) if self._has_text_name(folder)]

    def has(self, folder: str) -> bool:
        """Whether there is a folder of a model."""
        return is_folder(self.path / folder)

    def states(self) -> dict[str, Hashable]:
        """The fingerprints of the models' files."""
        return {folder: fingerprint(self.path / folder) for folder in self.folders()}

    def _has_text_name(self, folder: Path) -> bool:
        """Whether a model may have the folder's name; a folder with another is logged once."""
        if _is_utf8(folder.name):
            return True
        if folder not in self._ignored:
            self._ignored.add(folder)
            logger.warning("ignore model directory '%s': its name is not UTF-8", folder)
        return False


def subfolders(path: Path) -> list[Path]:
    """Subfolders by name, without hidden ones."""
    return sorted(p for p in path.iterdir() if is_folder(p) and not p.name.startswith("."))


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_folder(path: Path) -> bool:
    """Whether a path is a folder of files; Python's byte code is none, wherever it comes to lie."""
    return path.is_dir() and path.name != BYTE_CODE


def fingerprint(folder: Path, skipped: Collection[str] = ()) -> Fingerprint:
    """The fingerprint of a folder, without Python's byte code; links are followed.

    Leaves out the folders in `skipped`, by their names, and what cannot be read, such as dangling
    links.
    """
    root = str(folder)
    begin = len(os.path.join(root, ""))
    out = {os.path.join(root, name) for name in skipped}
    return frozenset((path[begin:], time, size) for path, time, size in _below(root, out))


def _below(folder: str, skipped: Collection[str]) -> Iterator[tuple[str, int, int]]:
    todo, entered = _entries(folder), set[tuple[int, int]]()
    while todo:
        entry = todo.pop()
        if entry.name == BYTE_CODE or entry.path in skipped:
            continue
        with suppress(OSError):  # removed meanwhile, or not accessible
            status = entry.stat()
            if not entry.is_dir():
                yield entry.path, status.st_mtime_ns, status.st_size
            elif (identity := (status.st_dev, status.st_ino)) not in entered:
                entered.add(identity)
                yield entry.path, 0, 0
                todo += _entries(entry.path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)
