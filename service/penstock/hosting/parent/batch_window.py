"""`BatchWindow`: how many batches a model process may have that it has not executed."""

from __future__ import annotations

from math import inf
from typing import Final

_AHEAD: Final = 300_000
"""Nanoseconds of executions that a process may have queued; waking it costs as much as some."""


class BatchWindow:
    """One batch for a `serial` process, or up to `most` while its executions are quick.

    It then finds the next one without being woken for it. Any other process may have any number.
    """

    __slots__ = ("_most", "_serial", "_size")

    def __init__(self, *, serial: bool, most: int) -> None:
        self._serial = serial
        self._most = most
        self._size = 1.0
        self.reset()

    def reset(self) -> None:
        """Of a process that has just started, nothing is known."""
        self._size = 1.0 if self._serial else inf

    def executed(self, duration: int) -> None:
        """An execution took so many nanoseconds: a slow one closes the window at once, quick ones
        open it step by step.
        """
        if self._serial:
            fitting = _AHEAD // max(duration, 1)
            self._size = max(1, min(fitting, self._size + 1, self._most))

    def has_room(self, batches: int) -> bool:
        """Whether a process with so many batches may have one more."""
        return batches < self._size
