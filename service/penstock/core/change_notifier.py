"""`Changes`: wakes tasks that wait for something to become different."""

from __future__ import annotations

import asyncio


class Changes:
    """A row of changes; who wants to miss none takes the next before it looks at what is."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """Set when the next change has happened."""
        return self._next

    def notify(self) -> None:
        """Something is different now."""
        happened, self._next = self._next, asyncio.Event()
        happened.set()
