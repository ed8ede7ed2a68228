"""`StepLimit`: how many calls of one step of an ensemble run at a time (contract E-11)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class StepLimit:
    """Calls beyond the limit wait in order of arrival."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: deque[Callable[[], bool]] = deque()
        self._admitting = False

    def enter(self, start: Callable[[], bool]) -> bool:
        """Take a place if one is free; otherwise `start` is called when it is its turn.

        `start` answers whether it takes the place: a call that nobody wants any more does not.
        """
        if self._free and not self._waiting:
            self._free -= 1
            return True
        self._waiting.append(start)
        return False

    def leave(self) -> None:
        """Give a place back, to the first who still wants it.

        Who gets it may give it back at once, which is no reason to go deeper.
        """
        self._free += 1
        if self._admitting:
            return
        self._admitting = True
        try:
            while self._free and self._waiting:
                self._free -= 1
                if not self._waiting.popleft()():
                    self._free += 1
        finally:
            self._admitting = False
