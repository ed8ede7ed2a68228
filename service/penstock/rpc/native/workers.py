"""Threads for what would hold the event loop up: compressing and unpacking large messages."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from penstock.http2.compression import Work

_THREADS = 4


class Workers:
    """The threads of one server, which zlib lets run beside the loop.

    Work takes turns step by step. Who stops waiting for it stops it at the next step.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "compression")
        self._growing = asyncio.Semaphore(_THREADS)

    async def run(self, work: Work) -> bytes:
        """What comes of it."""
        loop = asyncio.get_running_loop()
        while not await loop.run_in_executor(self._threads, work.step):
            pass
        return await loop.run_in_executor(self._threads, work.result)

    async def run_growing(self, work: Work) -> bytes:
        """The same for what may need far more memory than it has now: few of these at a time."""
        async with self._growing:
            return await self.run(work)

    def close(self) -> None:
        """Start nothing more; whoever waited has left."""
        self._threads.shutdown(wait=False, cancel_futures=True)
