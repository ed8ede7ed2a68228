"""`OwnCores`: cores that engines have for themselves, which the server's threads keep off."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

FEWEST = 4
"""Cores below which an engine is better off with all of them."""

_THREADS = Path("/proc/self/task")


class OwnCores:
    """Counts the users of each core, and sets the affinity of this process's threads to the others.

    `allowed` are the cores that the process had at first. Threads that begin later, and processes,
    have the affinity of what begins them.
    """

    def __init__(self, allowed: Collection[int] | None = None) -> None:
        self._allowed = frozenset(os.sched_getaffinity(0) if allowed is None else allowed)
        self._users: Counter[int] = Counter()

    def problem(self, cores: Collection[int]) -> str:
        """Why an engine cannot have these cores for itself; empty if it can."""
        if unknown := set(cores) - self._allowed:
            return f"core {min(unknown)} is not one of the server's, {_text(self._allowed)}"
        if len(self._allowed) < FEWEST:
            return f"the server has {len(self._allowed)} cores; it takes {FEWEST} to share them out"
        if not self._left(cores):
            return "they leave no core for the server"
        return ""

    def take(self, cores: Collection[int]) -> None:
        """Keep off these cores too, until they are given back."""
        self._users.update(cores)
        self._apply()

    def give_back(self, cores: Collection[int]) -> None:
        """Undo one `take` of these cores."""
        self._users -= Counter(cores)
        self._apply()

    def _left(self, more: Collection[int] = ()) -> frozenset[int]:
        return self._allowed - set(self._users) - set(more)

    def _apply(self) -> None:
        left = self._left() or self._allowed
        for thread in _THREADS.iterdir():
            with suppress(OSError):  # a thread may have ended
                os.sched_setaffinity(int(thread.name), left)


def _text(cores: Collection[int]) -> str:
    return ", ".join(map(str, sorted(cores)))
