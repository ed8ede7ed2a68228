"""`LoopTurn`: how much is done in one turn of the event loop, so that others have theirs soon."""

from __future__ import annotations

import asyncio


class LoopTurn:
    """Counts bytes that are worked on, of which a turn has room for `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._spent = 0

    @property
    def over(self) -> bool:
        """Whether the room of this turn is used up."""
        return self._spent >= self._most

    def spend(self, size: int) -> None:
        """Count more bytes."""
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._ended)
        self._spent += size

    def _ended(self) -> None:
        self._spent = 0
