"""A reserve of file descriptors: connections may not take the last ones of the process."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from math import inf
from typing import Protocol

from penstock.core.log_throttle import LogThrottle

logger = logging.getLogger(__name__)

_RESERVE = 64


class IdleConnection(Protocol):
    """A connection that may be closed while it waits for a request."""

    def close_idle(self) -> None:
        """Close it."""


class DescriptorReserve:
    """Keeps some descriptors for files, models and the processes of instances.

    Without it, a client that opens many connections would also prevent models from being loaded.
    One for all ports: where connections have taken all others, a new one takes the place of the one
    that has been idle for longest, and is refused if none is idle.
    """

    def __init__(self) -> None:
        self._idle: dict[IdleConnection, asyncio.BaseTransport] = {}  # the longest idle first
        self._open: set[asyncio.BaseTransport] = set()
        self._most = 0
        self._borrowing: set[asyncio.BaseTransport] = set()
        self._throttles = {"refused": LogThrottle(), "closed": LogThrottle()}

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        """Whether a new connection may stay; it is counted until it is `released`.

        The system hands out the lowest free number. A connection with a number of the reserve stays
        where another one leaves. While there is such a connection, a low number is no proof of
        room: then no more connections are kept than were open when room ran out.
        """
        found = transport.get_extra_info("socket")
        beyond = found is not None and found.fileno() >= spare_from()
        if beyond:
            self._most = len(self._open)
        full = beyond or (bool(self._borrowing) and len(self._open) >= self._most)
        if full and not self._close_oldest() and beyond:
            self._log("refused", "Connections are refused")
            return False
        if beyond:
            self._borrowing.add(transport)
        self._open.add(transport)
        return True

    def released(self, transport: asyncio.BaseTransport) -> None:
        """A connection is closed; one that was not admitted does not count."""
        self._borrowing.discard(transport)
        self._open.discard(transport)

    def became_idle(self, connection: IdleConnection, transport: asyncio.BaseTransport) -> None:
        """A connection waits for a request, from now on."""
        self._idle.pop(connection, None)
        self._idle[connection] = transport

    def became_busy(self, connection: IdleConnection) -> None:
        """A connection has a request, or is closed."""
        self._idle.pop(connection, None)

    def _close_oldest(self) -> bool:
        """Close the connection that has been idle for longest; false if there is none."""
        oldest = next(iter(self._idle), None)
        if oldest is None:
            return False
        self.released(self._idle.pop(oldest))
        oldest.close_idle()
        self._log("closed", "Idle connections are closed")
        return True

    def _log(self, kind: str, text: str) -> None:
        throttle = self._throttles[kind]
        if throttle.add(time.monotonic()):
            logger.warning(
                "%s, %d so far: of %d file descriptors the last are reserved",
                text,
                throttle.count,
                resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            )


def spare_from() -> float:
    """The first number of the reserve: a quarter of all, 64 at most."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return inf if limit == resource.RLIM_INFINITY else limit - min(_RESERVE, limit // 4)
