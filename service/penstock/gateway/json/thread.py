"""The thread on which large JSON is decoded and encoded, one text at a time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class JsonThread:
    """Runs what takes Python's interpreter lock in slices.

    One thread for all: each more would wait for the lock too, and the event loop behind them all.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "json")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function when its turn comes; a caller that is cancelled before has none."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._executor, lambda: _without_collections(function, *args, **kwargs)
        )

    def close(self) -> None:
        """Begin nothing more; the callers have been cancelled before."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _without_collections(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that makes millions of objects and no cycles of them.

    The garbage collector would look at all of them, again and again, without giving up the lock.
    """
    if not gc.isenabled():
        return function(*args, **kwargs)
    gc.disable()
    try:
        return function(*args, **kwargs)
    finally:
        gc.enable()
