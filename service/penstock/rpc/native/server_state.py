"""Shared state of a server's connections: limits, open connections, tasks, worker threads."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from penstock.core.turns import LoopTurn, Ration
from penstock.http2.frames import Limits
from penstock.http2.grpc import Work
from penstock.http2.keepalive import ConnectionAges, PingStrikes
from penstock.http2.stream import Buffer
from penstock.settings import CompressionLevel, KeepaliveSettings
from penstock.system.body_room import BodyRoom, Incomplete
from penstock.system.fd_reserve import DescriptorReserve

_SCRATCH = 256 << 10
_PER_TURN = 4 << 20
"""Bytes of large messages that are read in one turn of the event loop."""
_MOST_AT_ONCE = 100
"""Messages that streams read in one turn of the event loop: some 10 ms, with their answers."""
_CLOSE_SECONDS = 0.3
"""Seconds for clients to read the last frames; over TLS they need not answer the close."""


class OpenConnection(Protocol):
    """A connection, as the server that accepts and closes it sees it."""

    @property
    def negotiated_http2(self) -> bool:
        """Whether the TLS handshake has agreed on HTTP/2."""

    @property
    def calls(self) -> int:
        """The calls in flight."""

    @property
    def idle_since(self) -> float | None:
        """Loop time of the last read; `None` while calls are in flight or it is being closed."""

    def eldest_incomplete(self) -> Incomplete | None:
        """Its call whose request is incomplete for the longest time."""

    def close_idle(self) -> None:
        """Ask the client to come again later, and close."""

    def drain(self) -> None:
        """Ask the client to leave when its calls are done."""

    def close(self) -> None:
        """Cancel the calls in flight, and close after the last frames."""

    def abort(self) -> None:
        """Close the socket at once."""


class ServerState:
    """The shared state of one server's connections. `scratch` is the read buffer of all of them,
    `backlog` the ration of messages that streams read of those that wait for them, and `turn`
    counts what is read of large messages.
    """

    def __init__(
        self,
        limits: Limits,
        keepalive: KeepaliveSettings,
        compression: CompressionLevel = CompressionLevel.NONE,
        *,
        encrypted: bool = False,
        descriptors: DescriptorReserve | None = None,
        bodies: BodyRoom | None = None,
        ages: ConnectionAges | None = None,
    ) -> None:
        self.bodies = bodies or BodyRoom()
        self.bodies.eldest.append(self._eldest)
        self.loop = asyncio.get_running_loop()
        self.limits = limits
        self.ages = _ages(keepalive, ages or ConnectionAges())
        self.compression = compression
        self.encrypted = encrypted
        self.scratch = memoryview(bytearray(_SCRATCH))
        self.tasks: set[asyncio.Task[object]] = set()
        self.workers = Workers()
        self.backlog = Ration(_MOST_AT_ONCE)
        self.turn = LoopTurn(_PER_TURN)
        self._descriptors = descriptors or DescriptorReserve()
        self._keepalive = keepalive
        self._connections: dict[OpenConnection, asyncio.BaseTransport] = {}
        self._closing = False
        self._all_closed = asyncio.Event()

    def new_ping_strikes(self) -> PingStrikes:
        """The ping limit of one connection."""
        keepalive = self._keepalive
        return PingStrikes(
            keepalive.min_recv_ping_interval_without_data_ms / 1000,
            keepalive.max_ping_strikes,
            without_calls=keepalive.permit_without_calls,
        )

    def accept(self, connection: OpenConnection, transport: asyncio.BaseTransport) -> bool:
        """Track a new connection; false if it must be refused.

        Refused are connections of a closing server, those beyond the file descriptors that are
        left, and those over TLS that have not agreed on HTTP/2.
        """
        if self._closing or (self.encrypted and not connection.negotiated_http2):
            return False
        if not self._descriptors.admits(transport, connection):
            return False
        self._connections[connection] = transport
        return True

    def _eldest(self) -> Incomplete | None:
        """The call whose request is incomplete for the longest time."""
        found = [one for each in self._connections if (one := each.eldest_incomplete()) is not None]
        return min(found, key=lambda one: one.opened, default=None)

    def forget(self, connection: OpenConnection) -> None:
        """Stop tracking a connection that is closed."""
        transport = self._connections.pop(connection, None)
        if transport is not None:
            self._descriptors.released(transport)
        if not self._connections:
            self._all_closed.set()

    def calls(self) -> int:
        """The calls in flight on all connections."""
        return sum(connection.calls for connection in self._connections)

    async def close(self, grace: float) -> int:
        """Let running calls finish within `grace` seconds, then cancel them and disconnect.

        Returns how many were cancelled.
        """
        self._closing = True
        for connection in list(self._connections):
            connection.drain()
        await self._wait_for_close(grace)
        cut_off = self.calls()
        for connection in list(self._connections):
            connection.close()
        if self.tasks:
            await asyncio.wait(self.tasks)
        self.workers.close()
        await self._wait_for_close(_CLOSE_SECONDS)
        for connection in list(self._connections):
            connection.abort()
        await self._wait_for_close(_CLOSE_SECONDS)
        return cut_off

    async def _wait_for_close(self, seconds: float) -> None:
        """Wait until every connection is closed, or `seconds` have passed."""
        if self._connections and seconds > 0:
            self._all_closed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._all_closed.wait()


def _ages(keepalive: KeepaliveSettings, others: ConnectionAges) -> ConnectionAges:
    """The timeouts that are set, beside `others`."""
    ages = {
        "age": keepalive.max_connection_age_ms,
        "grace": keepalive.max_connection_age_grace_ms,
    }
    return replace(
        others,
        ping_after=keepalive.time_ms / 1000,
        ping_timeout=keepalive.timeout_ms / 1000,
        ping_without_calls=keepalive.permit_without_calls,
        **{name: value / 1000 for name, value in ages.items() if value is not None},
    )


_THREADS = 4


class Workers:
    """A thread pool for compression, during which zlib releases the GIL.

    Each step of a work is a job of its own, so that works share the threads fairly; cancelling the
    caller stops a work at its next step.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "compression")
        self._growing = asyncio.Semaphore(_THREADS)

    async def run(self, work: Work) -> Buffer:
        """Run `work` step by step on the pool; return its result."""
        loop = asyncio.get_running_loop()
        while not await loop.run_in_executor(self._threads, work.step):
            pass
        return await loop.run_in_executor(self._threads, work.result)

    async def run_growing(self, work: Work) -> Buffer:
        """As `run`, for work whose memory may grow large: only a few of these at a time."""
        async with self._growing:
            return await self.run(work)

    def close(self) -> None:
        """Start no more steps; the callers have been cancelled before."""
        self._threads.shutdown(wait=False, cancel_futures=True)
