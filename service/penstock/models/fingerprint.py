"""What a folder's files look like without reading them, to see later whether they have changed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

Fingerprint = frozenset[tuple[str, int, int]]
"""Every file and folder below one: its path, when it was changed, and its size."""

_MADE_BY_LOADING = "__pycache__"


def fingerprint(folder: Path, skipped: Collection[str] = ()) -> Fingerprint:
    """Everything below a folder but what Python compiles; a link is what it points to.

    Paths in `skipped`, and what is below them, do not count; nor do links to nowhere.
    """
    return frozenset(_below(str(folder), skipped))


def _below(folder: str, skipped: Collection[str]) -> Iterator[tuple[str, int, int]]:
    todo, entered = [folder], set[int]()
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.name == _MADE_BY_LOADING or entry.path in skipped:
                    continue
                try:
                    status = entry.stat()
                except FileNotFoundError:  # a link to nowhere, or a file that is gone already
                    continue
                if not entry.is_dir():
                    yield entry.path, status.st_mtime_ns, status.st_size
                elif status.st_ino not in entered:
                    entered.add(status.st_ino)
                    todo.append(entry.path)
                    yield entry.path, 0, 0
