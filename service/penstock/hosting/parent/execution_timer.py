"""`ExecutionTimer`: notices an execution that takes longer than it may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ExecutionTimer:
    """Calls back once, `limit` seconds after `restart`, unless it is restarted or stopped.

    Without a limit it never does.
    """

    __slots__ = ("_limit", "_on_late", "_timer")

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._on_late: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def attach(self, on_late: Callable[[], None]) -> None:
        """Tell the owner of a process that has just started."""
        self._on_late = on_late

    def restart(self) -> None:
        """Another execution is the first one now."""
        if self._limit is None or self._on_late is None:
            return
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(self._limit, self._on_late)

    def stop(self) -> None:
        """Nothing executes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
