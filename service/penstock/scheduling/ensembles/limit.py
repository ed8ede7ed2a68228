"""`StepLimit`: how many calls of one step of an ensemble run at a time (contract E-11)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable


class StepLimit:
    """Calls beyond the limit wait in order of arrival."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: OrderedDict[Callable[[], None], None] = OrderedDict()
        self._admitting = False

    @property
    def waiting(self) -> int:
        """Calls that have no place yet."""
        return len(self._waiting)

    def enter(self, start: Callable[[], None]) -> bool:
        """Take a place if one is free; otherwise `start` is called when it has got one."""
        if self._free and not self._waiting:
            self._free -= 1
            return True
        self._waiting[start] = None
        return False

    def forget(self, start: Callable[[], None]) -> None:
        """Nobody wants this call any more."""
        self._waiting.pop(start, None)

    def leave(self) -> None:
        """Give a place back, to the first who waits for one.

        Who gets it may give it back at once, which is no reason to go deeper.
        """
        self._free += 1
        if self._admitting:
            return
        self._admitting = True
        try:
            while self._free and self._waiting:
                self._free -= 1
                start, _ = self._waiting.popitem(last=False)
                start()
        finally:
            self._admitting = False
