"""The threads on which large JSON is decoded and encoded: one works at a time, in turns."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import deque
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

_SHARE_SECONDS = 0.005
"""Seconds after which another thread of large JSON has its turn."""

_SIZES = (2 << 20, 8 << 20, 32 << 20)
"""Bytes up to which texts share a thread; those that are longer have one of their own."""


class _Turns:
    """Which of several threads works: one at a time, in the order in which they asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._taken = False

    @property
    def wanted(self) -> bool:
        """Whether another thread waits for its turn."""
        return bool(self._waiting)

    def begin(self) -> None:
        """Wait for a turn."""
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        mine.acquire()

    def end(self) -> None:
        """Let the next thread have its turn."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False


class _Work(threading.local):
    """When this thread gives up the lock, and its turn; never but where large JSON is worked on."""

    due = inf
    share_ends = inf
    turns: _Turns | None = None


_work = _Work()


def give_turn() -> None:
    """Let others have the interpreter's lock, which they would get after 5 ms only.

    To be called between slices of work; without effect where it was called a moment ago.
    """
    now = time.monotonic()
    if now < _work.due:
        return
    time.sleep(_PAUSE_SECONDS)
    turns = _work.turns
    if turns is not None and turns.wanted and now >= _work.share_ends:
        turns.end()
        turns.begin()
        _work.share_ends = time.monotonic() + _SHARE_SECONDS
    _work.due = time.monotonic() + _TURN_SECONDS


class JsonThread:
    """An executor of work that holds Python's interpreter lock in slices, as of one thread.

    More would wait for the lock as well, and the event loop behind them all: of its threads, one
    for each class of sizes, one works at a time. They take turns, so that a short text does not
    wait for the end of a long one.
    """

    def __init__(self) -> None:
        self._executors = [ThreadPoolExecutor(1, "json") for _ in range(len(_SIZES) + 1)]
        self._turns = _Turns()

    async def run(
        self, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Queue a call for a text of `size` bytes and await its result.

        One that is cancelled before it begins is dropped.
        """
        loop = asyncio.get_running_loop()
        executor = self._executors[sum(size > one for one in _SIZES)]
        return await loop.run_in_executor(
            executor, lambda: _in_turns(self._turns, function, *args, **kwargs)
        )

    def close(self) -> None:
        """Drop queued calls, whose callers have been cancelled before."""
        for executor in self._executors:
            executor.shutdown(wait=False, cancel_futures=True)


def _in_turns(turns: _Turns, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that makes millions of objects and no cycles of them.

    The garbage collector would traverse all of them, again and again, without releasing the lock.
    """
    turns.begin()
    _collections.stop()
    _work.turns = turns
    _work.due, _work.share_ends = 0.0, time.monotonic() + _SHARE_SECONDS
    try:
        return function(*args, **kwargs)
    finally:
        _work.due, _work.turns = inf, None
        _collections.go_on()
        turns.end()


class _Collections:
    """The garbage collector, which rests while any thread of large JSON is at work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = 0
        self._collects = False

    def stop(self) -> None:
        with self._lock:
            if not self._stopped:
                self._collects = gc.isenabled()
                gc.disable()
            self._stopped += 1

    def go_on(self) -> None:
        with self._lock:
            self._stopped -= 1
            if not self._stopped and self._collects:
                gc.enable()


_collections = _Collections()
