"""How long the event loop is held up, whatever else the machine does meanwhile."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Gaps:
    """The most that the thread of the loop worked between two turns for others, in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = time.thread_time()

    def look(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self._last)
        self._last = now

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(0)


@asynccontextmanager
async def measured() -> AsyncIterator[Gaps]:
    """Watch the loop until the block ends, in which nobody collects garbage."""
    gc.collect()
    gc.disable()
    gaps = Gaps()
    watching = asyncio.ensure_future(gaps.watch())
    try:
        yield gaps
        gaps.look()
    finally:
        gc.enable()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
