"""What a folder's files look like without reading them, to see later whether they have changed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

Fingerprint = frozenset[tuple[str, int, int]]
"""Every file and folder below one: its path, when it was changed, and its size."""

_MADE_BY_LOADING = "__pycache__"


def fingerprint(folder: Path, skipped: Collection[str] = ()) -> Fingerprint:
    """Everything below a folder but what Python compiles; a link is what it points to.

    Paths in `skipped`, and what is below them, do not count; nor does what cannot be looked at, as
    links to nowhere and folders of others below this one.
    """
    return frozenset(_below(str(folder), skipped))


def _below(folder: str, skipped: Collection[str]) -> Iterator[tuple[str, int, int]]:
    todo, entered = _entries(folder), set[tuple[int, int]]()
    while todo:
        entry = todo.pop()
        if entry.name == _MADE_BY_LOADING or entry.path in skipped:
            continue
        with suppress(OSError):  # gone already, or out of reach
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
