"""The open connections of one HTTP port, and what they share."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.core.access import AccessSink, AuditSink
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.turns import LoopTurn
from penstock.http1.limits import HttpLimits
from penstock.http1.requests import HeadCache
from penstock.settings import HttpSettings
from penstock.system.body_room import BodyRoom, Incomplete
from penstock.system.certificates import ServerCertificates
from penstock.system.fd_reserve import DescriptorReserve

_SCRATCH = 256 << 10

_PER_TURN = 4 << 20
"""Bytes of large bodies that are read in one turn of the event loop: one or two milliseconds."""

_ABORT_SECONDS = 1.0
"""Seconds that handlers may take to end after their connection was aborted."""


@dataclass(frozen=True, slots=True)
class ConnectionRules:
    """The limits, descriptor reserve, logs, memory and certificates of all HTTP ports."""

    limits: HttpLimits = field(default_factory=HttpLimits)
    descriptors: DescriptorReserve = field(default_factory=DescriptorReserve)
    access: AccessSink | None = None
    bodies: BodyRoom = field(default_factory=BodyRoom)
    certificates: ServerCertificates | None = None
    audit: AuditSink | None = None


def limits_of(http: HttpSettings) -> HttpLimits:
    """The limits of connections that the settings say, for all HTTP ports."""
    return HttpLimits(
        max_head_size=http.max_header_size,
        max_fields=http.max_header_count,
        opening=http.header_timeout_secs,
        body_period=http.body_timeout_secs,
        idle=http.idle_timeout_secs,
        sending=http.send_timeout_secs,
    )


class OpenConnection(Protocol):
    """A connection, as the server that accepts and closes it sees it."""

    @property
    def idle_since(self) -> float | None:
        """Loop time since which it waits for a request; `None` while it has one, or is closed."""

    def incomplete(self) -> Incomplete | None:
        """The request whose body is not complete, if there is one."""

    def close_idle(self) -> None:
        """Close a connection that waits for a request."""

    def drain(self) -> None:
        """Close when the response that is being sent is complete; now if there is none."""

    def abort(self) -> None:
        """Close the socket at once."""


class OpenConnections:
    """The connections of one port; `scratch` is the read buffer of all, `heads` caches heads.

    `turn` counts what is read of large bodies.
    """

    def __init__(self, rules: ConnectionRules) -> None:
        self.loop = asyncio.get_running_loop()
        self.rules = rules
        self.scratch = memoryview(bytearray(_SCRATCH))
        self.heads = HeadCache()
        self.turn = LoopTurn(_PER_TURN)
        self.tasks: set[asyncio.Task[Any]] = set()
        self._open: dict[OpenConnection, asyncio.BaseTransport] = {}
        self._lost = asyncio.Event()
        self._closing = False
        rules.bodies.eldest.append(self._eldest)

    def accept(self, connection: OpenConnection, transport: asyncio.BaseTransport) -> bool:
        """Track a new connection; false if there is no descriptor for it."""
        if self._closing or not self.rules.descriptors.admits(transport, connection):
            return False
        self._open[connection] = transport
        return True

    def _eldest(self) -> Incomplete | None:
        """The request whose body is incomplete for the longest time."""
        found = [one for each in self._open if (one := each.incomplete()) is not None]
        return min(found, key=lambda one: one.opened, default=None)

    def forget(self, connection: OpenConnection) -> None:
        """Stop tracking a connection that is closed."""
        transport = self._open.pop(connection, None)
        if transport is not None:
            self.rules.descriptors.released(transport)
        self._lost.set()

    async def close(self, grace: ExitDeadline) -> None:
        """Close idle connections now, others after their request; abort them after `grace`."""
        self._closing = True
        for connection in list(self._open):
            connection.drain()
        grace.waits_for("HTTP requests", self._busy)
        await self._gone(grace.left())
        grace.cut(self._busy())
        for connection in list(self._open):
            connection.abort()
        await self._gone(_ABORT_SECONDS)
        for task in self.tasks:
            task.cancel()

    def _busy(self) -> int:
        """How many connections have a request."""
        return sum(connection.idle_since is None for connection in self._open)

    async def _gone(self, seconds: float) -> None:
        """Wait until no connection and no handler is left, for at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._open:
                    self._lost.clear()
                    await self._lost.wait()
                if self.tasks:
                    await asyncio.wait(self.tasks)
