"""What all connections of one server share: limits, routes, open connections, worker threads."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.http2.compression import Work
from penstock.http2.keepalive import Ages, Strikes
from penstock.http2.limits import Limits
from penstock.settings import CompressionLevel, KeepaliveSettings
from penstock.system.fd_reserve import DescriptorReserve

if TYPE_CHECKING:
    from penstock.rpc.native.connection import Shell
    from penstock.rpc.native.routes import Routes


_SCRATCH = 256 << 10
_LAST_WORDS = 0.3
"""Seconds for clients to read what they are told at the end; those of TLS need not answer it."""


class Endpoint:
    """Methods, limits, and who is connected. `scratch` is where every connection reads to."""

    def __init__(
        self,
        routes: Routes,
        limits: Limits,
        keepalive: KeepaliveSettings,
        compression: CompressionLevel = CompressionLevel.NONE,
        *,
        encrypted: bool = False,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.routes = routes
        self.limits = limits
        self.ages = _ages(keepalive)
        self.compression = compression
        self.encrypted = encrypted
        self.scratch = memoryview(bytearray(_SCRATCH))
        self.tasks: set[asyncio.Task[object]] = set()
        self.workers = Workers()
        self._descriptors = DescriptorReserve()
        self._keepalive = keepalive
        self._shells: set[Shell] = set()
        self._closing = False
        self._left = asyncio.Event()

    def strikes(self) -> Strikes:
        """How often one client may ping."""
        keepalive = self._keepalive
        return Strikes(
            keepalive.min_recv_ping_interval_without_data_ms / 1000,
            keepalive.max_ping_strikes,
            without_calls=keepalive.permit_without_calls,
        )

    def accept(self, shell: Shell, transport: asyncio.BaseTransport) -> bool:
        """Take a new connection if there is room, the server stays, and it speaks HTTP/2."""
        if self._closing or (self.encrypted and not shell.agreed):
            return False
        if not self._descriptors.admits(transport):
            return False
        self._shells.add(shell)
        return True

    def forget(self, shell: Shell) -> None:
        """A connection is gone."""
        self._shells.discard(shell)
        if not self._shells:
            self._left.set()

    async def close(self, grace: float) -> None:
        """Let running calls finish within `grace` seconds, then end them and every connection."""
        self._closing = True
        for shell in list(self._shells):
            shell.drain()
        await self._all_left(grace)
        for shell in list(self._shells):
            shell.close()
        if self.tasks:
            await asyncio.wait(self.tasks)
        self.workers.close()
        await self._all_left(_LAST_WORDS)
        for shell in list(self._shells):
            shell.abort()
        await self._all_left(_LAST_WORDS)

    async def _all_left(self, seconds: float) -> None:
        """Wait until every connection is gone, so long at most."""
        if self._shells and seconds > 0:
            self._left.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._left.wait()


def _ages(keepalive: KeepaliveSettings) -> Ages:
    ages = {
        "age": keepalive.max_connection_age_ms,
        "grace": keepalive.max_connection_age_grace_ms,
    }
    return Ages(
        ping_after=keepalive.time_ms / 1000,
        ping_timeout=keepalive.timeout_ms / 1000,
        ping_without_calls=keepalive.permit_without_calls,
        **{name: value / 1000 for name, value in ages.items() if value is not None},
    )


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
