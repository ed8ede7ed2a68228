"""When requests run out of time: the decision, and the one timer around it.

A request that is answered in time, as nearly all are, costs two operations on a dictionary.
"""

from __future__ import annotations

import asyncio
import heapq
from math import ceil, floor, inf
from typing import Generic, Protocol, TypeVar

_FINE = 0.01
"""Seconds by which a deadline may be noticed late."""

_SLACK = 0.001
"""By how much rounding, and the clocks of timers, may take a time for an earlier one, or more."""

_COARSE = 1.0
_FAR = 10.0
"""Deadlines farther away than this, in seconds, are looked at once per `_COARSE` at first."""

T = TypeVar("T")

TimerSlot = dict[T, float]
"""Where an item waits; `pop` it there when its deadline no longer matters."""


class TimingWheel(Generic[T]):
    """Items by the slot of time in which they fall due. Knows no clock."""

    def __init__(self) -> None:
        self._slots: dict[float, TimerSlot[T]] = {}
        self._order: list[float] = []

    def add(self, item: T, when: float, now: float) -> TimerSlot[T]:
        """Have `item` fall due at `when`, or up to `_FINE` seconds later."""
        far = when - now > _FAR
        at = floor(when / _COARSE) * _COARSE if far else ceil(when / _FINE) * _FINE
        slot = self._slots.get(at)
        if slot is None:
            slot = self._slots[at] = {}
            heapq.heappush(self._order, at)
        slot[item] = when
        return slot

    def next(self) -> float:
        """When to look again; `inf` for never."""
        return self._order[0] if self._order else inf

    def due(self, now: float) -> list[T]:
        """What has fallen due; it is forgotten here."""
        found: list[T] = []
        while self._order and self._order[0] <= now:
            for item, when in self._slots.pop(heapq.heappop(self._order)).items():
                if when <= now + _SLACK:
                    found.append(item)
                else:
                    self.add(item, when, now)
        return found


class Expiring(Protocol):
    """What can run out of time."""

    def expire(self) -> None:
        """Time is up."""


class Deadlines:
    """Calls `expire` on what runs out of time."""

    def __init__(self) -> None:
        self._wheel: TimingWheel[Expiring] = TimingWheel()
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf

    def watch(self, item: Expiring, when: float) -> TimerSlot[Expiring]:
        """Expire `item` at `when` on the loop's clock, unless it leaves the ticket before."""
        loop = asyncio.get_running_loop()
        ticket = self._wheel.add(item, when, loop.time())
        self._plan(loop)
        return ticket

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        at = self._wheel.next()
        if at >= self._at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = loop.call_at(at, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer, self._at = None, inf
        for item in self._wheel.due(loop.time()):
            item.expire()
        self._plan(loop)
