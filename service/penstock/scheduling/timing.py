"""Timers for delays under a millisecond, the resolution of event loops such as uvloop.

Queue delays of 100 microseconds are common (contract D-04); Linux has `timerfd` for them.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

_SHORT = 0.01
"""Seconds below which the loop's own timers are too coarse."""
TICK = 0.001
"""Resolution of the loop's timers in seconds; with less, uvloop would poll in a busy loop."""
_CLOCK_MONOTONIC = 1
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class ScheduledCall(Protocol):
    """A pending callback of a timer."""

    def cancel(self) -> None: ...


def _library() -> Any:
    return ctypes.CDLL(None) if sys.platform == "linux" else None


_LIBRARY = _library()


class LoopClock:
    """The clock of an event loop, and timers on it.

    `library` is that of C, of which `timerfd_create` and `timerfd_settime` are used if it has them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, library: Any = _LIBRARY) -> None:
        self._loop = loop
        self._create = getattr(library, "timerfd_create", None)
        self._settime: Any = getattr(library, "timerfd_settime", None)
        self._coarse = type(loop).__module__.startswith("uvloop")
        self.now: Callable[[], float] = time.monotonic if self._coarse else loop.time

    def call_at(self, when: float, callback: Callable[[], None]) -> ScheduledCall:
        """Call `callback` at `when` on this clock, or a little later; rarely earlier, by a tick."""
        delay = when - self.now()
        if self._coarse and delay < _SHORT and self._create is not None:
            fd = self._create(_CLOCK_MONOTONIC, _FLAGS)
            if fd >= 0:
                nanoseconds = max(1, int(delay * 1e9))  # 0 would mean never
                times = struct.pack("qqqq", 0, 0, *divmod(nanoseconds, 10**9))
                self._settime(fd, 0, times, None)
                return _ShortTimer(self._loop, fd, callback)
        return self._loop.call_later(max(delay, TICK), callback)


class _ShortTimer:
    """A kernel timer (`timerfd`); its descriptor is closed when it has run or is cancelled."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, fd: int, callback: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._callback = callback
        loop.add_reader(fd, self._run)

    def cancel(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _run(self) -> None:
        self.cancel()
        self._callback()
