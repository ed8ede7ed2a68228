"""The memory that request bodies may take together, whatever protocol they come by."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

_PATIENCE = 10.0
"""Seconds after which a body that waits for memory takes that of the eldest incomplete one."""
_NEXT = 1.0
"""Seconds until it may take that of the next."""
_OVERDRAFT = 32 << 20
"""Bytes that may be on their way when the memory is used up."""
_RESUMED = 4 << 20
"""Bytes that are likely to come of a body that goes on."""


class Charge:
    """The bytes of one body that are in memory."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


class Incomplete(NamedTuple):
    """A body that is not complete: when its request began, in nanoseconds, and how to refuse it."""

    opened: int
    refuse: Callable[[], None]


class BodyQuota:
    """Counts the bytes of bodies, from their arrival until the last view of their memory is gone.

    Once there are `most`, no more is read of bodies that are incomplete, until others are gone. If
    one has waited for ten seconds, the eldest incomplete body is refused: its client may never send
    the rest. `eldest` are callbacks, one for each port, that find it.
    """

    def __init__(self, most: int) -> None:
        self.eldest: list[Callable[[], Incomplete | None]] = []
        self._most = most
        self._used = 0
        self._freed: deque[int] = deque()  # filled by finalizers, in any thread
        self._waiting: dict[Callable[[], None], float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def used(self) -> int:
        """Bytes of bodies in flight."""
        while self._freed:
            self._used -= self._freed.popleft()
        return self._used

    @property
    def exhausted(self) -> bool:
        """Whether incomplete bodies have to wait."""
        return self.used >= self._most

    @property
    def overdrawn(self) -> bool:
        """Whether so much has come beyond it that no more is read of their connections."""
        return self.used >= self._most + _OVERDRAFT

    def open(self, memory: memoryview, size: int) -> Charge:
        """Count `size` bytes of a body in this memory, which is that of a numpy array."""
        charge = Charge(size)
        self._used += size
        weakref.finalize(memory.obj, self._gone, charge).atexit = False
        return charge

    def add(self, charge: Charge, size: int) -> None:
        """Count more bytes of the same body, in the same memory."""
        charge.size += size
        self._used += size

    def wait(self, on_room: Callable[[], None]) -> None:
        """Call `on_room` once there is memory; nothing if it waits already."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._waiting.setdefault(on_room, self._loop.time())
        self._arm()

    async def room(self) -> None:
        """Wait until there is memory."""
        if self.exhausted:
            free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.wait(lambda: None if free.done() else free.set_result(None))
            await free

    def stop_waiting(self, on_room: Callable[[], None]) -> None:
        """Do not call `on_room`."""
        self._waiting.pop(on_room, None)

    def _gone(self, charge: Charge) -> None:
        self._freed.append(charge.size)
        if self._waiting and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._serve)

    def _serve(self) -> None:
        """Let bodies go on, as many as there is memory for."""
        room = self._most - self.used
        while self._waiting and room > 0:
            on_room = next(iter(self._waiting))
            del self._waiting[on_room]
            room -= _RESUMED
            on_room()

    def _arm(self) -> None:
        if self._timer is None and self._waiting and self._loop is not None:
            due = next(iter(self._waiting.values())) + _PATIENCE
            self._timer = self._loop.call_at(max(due, self._loop.time() + _NEXT), self._overdue)

    def _overdue(self) -> None:
        self._timer = None
        self._serve()
        if self._waiting and self._loop is not None:
            since = next(iter(self._waiting.values()))
            if self._loop.time() >= since + _PATIENCE:
                found = [one for eldest in self.eldest if (one := eldest()) is not None]
                if found:
                    min(found, key=lambda one: one.opened).refuse()
            self._arm()
