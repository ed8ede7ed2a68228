"""Who uses the memory of a region."""

from __future__ import annotations

import weakref
from collections.abc import Callable


class RegionUses:
    """Each use ends when it is released, or with the object that holds it, in whichever thread.

    `on_idle` is called when the last has ended.
    """

    def __init__(self) -> None:
        self.on_idle: Callable[[], None] | None = None
        self._holders: dict[int, weakref.ref[object]] = {}
        self._numbers = 0

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._holders)

    def number(self) -> int:
        """One for the next use."""
        self._numbers += 1
        return self._numbers

    def begin(self, number: int, holder: object) -> None:
        """The use with this number lives as long as `holder`, at most."""
        self._holders[number] = weakref.ref(holder, lambda _: self.end(number))

    def end(self, number: int) -> None:
        """It is over; a second time changes nothing."""
        if self._holders.pop(number, None) is not None and not self and self.on_idle is not None:
            self.on_idle()
