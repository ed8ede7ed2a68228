"""Deadlines of requests: a timing wheel, and the one timer that drives it.

A request that is answered in time, as nearly all are, costs two dictionary operations.
"""

from __future__ import annotations

import asyncio
import heapq
from math import ceil, floor, inf
from typing import Generic, Protocol, TypeVar

_FINE = 0.01
"""Seconds by which a deadline may be noticed late."""

_SLACK = 0.001
"""Tolerance in seconds for rounding, and for timers that fire early."""

_COARSE = 1.0
_FAR = 10.0
"""Deadlines farther away than this, in seconds, share slots of `_COARSE` seconds at first."""

T = TypeVar("T")

TimerSlot = dict[T, float]
"""A slot of the wheel: items with their deadlines. To cancel a deadline, `pop` its item."""


class TimingWheel(Generic[T]):
    """A timing wheel: items by the time slot of their deadline. Knows no clock."""

    def __init__(self) -> None:
        self._slots: dict[float, TimerSlot[T]] = {}
        self._order: list[float] = []

    def add(self, item: T, when: float, now: float) -> TimerSlot[T]:
        """Make `item` due at `when`, or up to `_FINE` seconds later; returns its slot."""
        far = when - now > _FAR
        at = floor(when / _COARSE) * _COARSE if far else ceil(when / _FINE) * _FINE
        slot = self._slots.get(at)
        if slot is None:
            slot = self._slots[at] = {}
            heapq.heappush(self._order, at)
        slot[item] = when
        return slot

    def next(self) -> float:
        """Time of the next call of `due`; `inf` for never."""
        return self._order[0] if self._order else inf

    def due(self, now: float) -> list[T]:
        """Remove and return the items that are due."""
        found: list[T] = []
        while self._order and self._order[0] <= now:
            for item, when in self._slots.pop(heapq.heappop(self._order)).items():
                if when <= now + _SLACK:
                    found.append(item)
                else:
                    self.add(item, when, now)
        return found


class Expiring(Protocol):
    """An item with a deadline."""

    def expire(self) -> None:
        """Called when the deadline has passed."""


class Deadlines:
    """Calls `expire` on items whose deadline has passed."""

    def __init__(self) -> None:
        self._wheel: TimingWheel[Expiring] = TimingWheel()
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf

    def watch(self, item: Expiring, when: float) -> TimerSlot[Expiring]:
        """Expire `item` at `when` on the loop's clock, unless it is popped from the slot before."""
        loop = asyncio.get_running_loop()
        slot = self._wheel.add(item, when, loop.time())
        self._arm(loop)
        return slot

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        at = self._wheel.next()
        if at >= self._at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = loop.call_at(at, self._fire)

    def _fire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer, self._at = None, inf
        for item in self._wheel.due(loop.time()):
            item.expire()
        self._arm(loop)
