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
    if not gc.isenabled():
        return function(*args, **kwargs)
    gc.disable()
    try:
        return function(*args, **kwargs)
    finally:
        gc.enable()
