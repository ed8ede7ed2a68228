"""Waiting for memory: bodies of which no more is read until there is room in their quota."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from penstock.core.body_quota import BodyQuota

_PATIENCE = 10.0
_NEXT = 0.1
"""Of the patience, the time until the next body is refused."""
_RESUMED = 4 << 20
"""Bytes that are likely to come of a body that goes on."""
_PACE = 0.01
"""Seconds in which they come, if its client sends at all; else others may have the room."""
_ENOUGH = 4 * _RESUMED
"""Bytes of room for which bodies are refused, or an eighth of all if that is less."""


class Incomplete(NamedTuple):
    """A body that is not complete: when its request began, in nanoseconds, and how to refuse it."""

    opened: int
    refuse: Callable[[], None]


class BodyRoom:
    """The order of bodies that wait for memory; `most` are its bytes, 0 for a quarter of all.

    If one has waited for `patience` seconds, the eldest incomplete body is refused: its client may
    never send the rest. More are, faster and faster, until there is room: they may be small, and
    very many. `eldest` are callbacks, one for each port, that find it.
    """

    def __init__(self, most: int = 0, patience: float = _PATIENCE) -> None:
        self.quota = BodyQuota(most or memory_size() // 4)
        self._patience = patience
        self._pause = 0.0  # until the next body is refused; 0 while none is
        self.eldest: list[Callable[[], Incomplete | None]] = []
        self._waiting: dict[Callable[[], None], float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None

    def wait(self, on_room: Callable[[], None]) -> None:
        """Call `on_room` once there is memory; no effect if it waits already."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self.quota.on_freed = self._freed
        self._waiting.setdefault(on_room, self._loop.time())
        if not self.quota.exhausted:  # another thread has freed some, and saw nobody wait
            self._loop.call_soon(self._serve)
        self._arm(self._loop)

    async def room(self) -> None:
        """Wait until there is memory."""
        if self.quota.exhausted:
            free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            on_room = partial(_set, free)
            self.wait(on_room)
            try:
                await free
            finally:
                self.stop_waiting(on_room)

    def stop_waiting(self, on_room: Callable[[], None]) -> None:
        """Do not call `on_room`."""
        self._waiting.pop(on_room, None)

    def _freed(self) -> None:
        if self._waiting and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._serve)

    def _serve(self) -> None:
        """Let bodies go on, as many as there is memory for."""
        room = self.quota.most - self.quota.used
        while self._waiting and room > 0:
            on_room = next(iter(self._waiting))
            del self._waiting[on_room]
            room -= _RESUMED
            on_room()
        if self._waiting and not self.quota.exhausted:
            self._serve_soon()

    def _serve_soon(self) -> None:
        if self._again is None and self._loop is not None:
            self._again = self._loop.call_later(_PACE, self._serve_again)

    def _serve_again(self) -> None:
        self._again = None
        self._serve()

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None and (self._waiting or self._pause):
            soon = loop.time() + (self._pause or _NEXT * self._patience)
            self._timer = loop.call_at(soon if self._pause else max(self._due(), soon), self._look)

    def _due(self) -> float:
        """When the body that waits for longest has waited for too long."""
        return next(iter(self._waiting.values())) + self._patience

    def _look(self) -> None:
        assert self._loop is not None
        self._timer = None
        self._serve()
        if self._pause or (self._waiting and self._loop.time() >= self._due()):
            self._refuse_eldest()
        self._arm(self._loop)

    def _refuse_eldest(self) -> None:
        """Refuse a body, and more in ever shorter time until there is enough room."""
        found = [one for eldest in self.eldest if (one := eldest()) is not None]
        if found:
            min(found, key=lambda one: one.opened).refuse()
        enough = min(_ENOUGH, self.quota.most // 8)
        if not found or self.quota.most - self.quota.used >= enough:
            self._pause = 0.0
        else:
            self._pause = max(self._pause / 2, _PACE) if self._pause else _NEXT * self._patience


def _set(free: asyncio.Future[None]) -> None:
    if not free.done():  # else who waits for it was cancelled in this turn of the loop
        free.set_result(None)


_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def memory_size(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """Bytes: what the control groups grant, at most what the machine has.

    `groups` is where these are mounted, `own` names those of the process.
    """
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in _limits(groups, own):
        try:
            most = min(most, int(file.read_text()))
        except (OSError, ValueError):  # no such file, or "max" for no limit
            continue
    return most


def _limits(groups: Path, own: Path) -> Iterator[Path]:
    """Files of limits: those of the groups that the process is in, and of all around them."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = ["0::/"]
    for line in lines:
        _, kinds, path = line.split(":", 2)
        root, name = groups, "memory.max"
        if kinds:
            root, name = groups / "memory", "memory.limit_in_bytes"
        if not kinds or "memory" in kinds.split(","):
            inner = Path(path.lstrip("/"))
            for group in (inner, *inner.parents):
                yield root / group / name
