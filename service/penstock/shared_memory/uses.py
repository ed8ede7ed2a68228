"""Reference count of a region's memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable


class RegionUses:
    """Counts uses; each ends when it is released, or with the object that holds it, in any thread.

    The callback `on_idle` is called when the last has ended.
    """

    def __init__(self) -> None:
        self.on_idle: Callable[[], None] | None = None
        self._holders: dict[int, weakref.ref[object]] = {}
        self._numbers = 0

    def __bool__(self) -> bool:
        """Whether the memory is in use."""
        return bool(self._holders)

    def number(self) -> int:
        """A number for the next use."""
        self._numbers += 1
        return self._numbers

    def begin(self, number: int, holder: object) -> None:
        """Begin a use that lives as long as `holder`, at most."""
        self._holders[number] = weakref.ref(holder, lambda _: self.end(number))

    def end(self, number: int) -> None:
        """End a use; ending it twice changes nothing."""
        if self._holders.pop(number, None) is not None and not self and self.on_idle is not None:
            self.on_idle()
