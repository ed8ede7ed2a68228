"""The thread on which large JSON is decoded and encoded, one text at a time."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


_TURN_SECONDS = 0.001
"""Seconds for which the thread may hold the interpreter's lock while others want it."""

_PAUSE_SECONDS = 0.00005
"""Seconds in which one that waits for the lock gets it."""


class _Turn(threading.local):
    """When the lock is to be given up next; never on other threads than that of large JSON."""

    due = inf


_turn = _Turn()


def give_turn() -> None:
    """Let others have the interpreter's lock, which they would get after 5 ms only.

    To be called between slices of work; without effect where it was called a moment ago.
    """
    if time.monotonic() >= _turn.due:
        time.sleep(_PAUSE_SECONDS)
        _turn.due = time.monotonic() + _TURN_SECONDS


class JsonThread:
    """An executor of one thread, for work that holds Python's interpreter lock in slices.

    Each further thread would wait for the lock as well, and the event loop behind them all.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "json")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Queue a call and await its result; one that is cancelled before it begins is dropped."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._executor, lambda: _without_collections(function, *args, **kwargs)
        )

    def close(self) -> None:
        """Drop queued calls, whose callers have been cancelled before."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _without_collections(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that makes millions of objects and no cycles of them.

    The garbage collector would traverse all of them, again and again, without releasing the lock.
    """
    collects = gc.isenabled()
    gc.disable()
    _turn.due = 0.0
    try:
        return function(*args, **kwargs)
    finally:
        _turn.due = inf
        if collects:
            gc.enable()
