"""`ChangeNotifier`: notifies waiting tasks of changes, like a condition without a lock."""

from __future__ import annotations

import asyncio


class ChangeNotifier:
    """A succession of events, one per change.

    To miss no change, take `next` before reading the state that may change.
    """

    def __init__(self) -> None:
        self._next = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """The event that the next change sets."""
        return self._next

    def notify(self) -> None:
        """Set the event of this change, and begin another."""
        happened, self._next = self._next, asyncio.Event()
        happened.set()
