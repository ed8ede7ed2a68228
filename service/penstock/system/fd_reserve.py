"""A reserve of file descriptors: connections may not take the last ones of the process."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from itertools import islice
from math import inf
from typing import Protocol

from penstock.core.log.log_throttle import LogThrottle
from penstock.system.send_queue import unread

logger = logging.getLogger(__name__)

_RESERVE = 64

_LOOKS = 512
"""Connections that are asked whether they are idle when one must go."""


class OpenConnection(Protocol):
    """A connection that may be closed while it waits for a request."""

    @property
    def idle_since(self) -> float | None:
        """Since when, on the clock of `time.monotonic`; `None` while it has something to do."""

    def close_idle(self) -> None:
        """Close it."""


class DescriptorReserve:
    """Keeps some descriptors for files, models and the processes of instances.

    Without it, a client that opens many connections would also prevent models from being loaded.
    One for all ports: where connections have taken all others, a new one takes the place of the one
    that has been idle for longest, and is refused if none is idle.
    """

    def __init__(self) -> None:
        self._asked: dict[asyncio.BaseTransport, OpenConnection] = {}
        self._open: set[asyncio.BaseTransport] = set()
        self._most = 0
        self._borrowing: dict[asyncio.BaseTransport, int] = {}  # with their numbers
        self._throttles = {"refused": LogThrottle(), "closed": LogThrottle()}

    def admits(
        self, transport: asyncio.BaseTransport, connection: OpenConnection | None = None
    ) -> bool:
        """Whether a new connection may stay; it is counted until it is `released`.

        A `connection` is asked whether it is idle when another one needs its place.

        The system hands out the lowest free number. A connection with a number of the reserve stays
        where another one leaves. While there is such a connection, a low number is no proof of
        room: then no more connections are kept than were open when room ran out. One that was
        handed over to the transport is admitted already.
        """
        if transport in self._open:
            self._ask(transport, connection)
            return True
        number, spare = _number(transport), spare_from()
        beyond = number >= spare
        if beyond:
            self._most = len(self._open)
        elif self._borrowing and max(self._borrowing.values()) < spare:
            self._borrowing.clear()  # the limit was raised
        full = beyond or (bool(self._borrowing) and len(self._open) >= self._most)
        if full and not self._close_oldest() and beyond:
            self._log("refused", "Connections are refused")
            return False
        if beyond:
            self._borrowing[transport] = number
        self._open.add(transport)
        self._ask(transport, connection)
        return True

    def handed_over(self, before: asyncio.BaseTransport, after: asyncio.BaseTransport) -> None:
        """A connection that was admitted goes on over another transport, as after a handshake."""
        if before in self._open:
            self._open.remove(before)
            self._open.add(after)
        if (number := self._borrowing.pop(before, None)) is not None:
            self._borrowing[after] = number
        self._asked.pop(before, None)

    def released(self, transport: asyncio.BaseTransport) -> None:
        """A connection is closed; one that was not admitted does not count."""
        self._borrowing.pop(transport, None)
        self._open.discard(transport)
        self._asked.pop(transport, None)

    def _ask(self, transport: asyncio.BaseTransport, connection: OpenConnection | None) -> None:
        if connection is not None:
            self._asked[transport] = connection

    def _close_oldest(self) -> bool:
        """Close the connection that has been idle for longest; false if there is none."""
        oldest, transport = self._oldest_asked()
        if oldest is None or transport is None:
            return False
        self.released(transport)
        oldest.close_idle()
        self._log("closed", "Idle connections are closed")
        return True

    def _oldest_asked(self) -> tuple[OpenConnection | None, asyncio.BaseTransport | None]:
        """The longest idle of the first `_LOOKS` that are asked.

        Those that are busy are asked last from then on, so that all get asked in turn.
        """
        oldest: OpenConnection | None = None
        since, found = inf, None
        for transport, connection in list(islice(self._asked.items(), _LOOKS)):
            its = connection.idle_since
            if its is None or _unread(transport):  # the loop may be late
                del self._asked[transport]
                self._asked[transport] = connection
            elif its < since:
                oldest, since, found = connection, its, transport
        return oldest, found

    def _log(self, kind: str, text: str) -> None:
        throttle = self._throttles[kind]
        if throttle.add(time.monotonic()):
            logger.warning(
                "%s, %d so far: of %d file descriptors the last are reserved",
                text,
                throttle.count,
                resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            )


def _number(transport: asyncio.BaseTransport) -> int:
    found = transport.get_extra_info("socket")
    return -1 if found is None else int(found.fileno())


def _unread(transport: asyncio.BaseTransport) -> bool:
    """Whether the client has sent what the server has not read yet."""
    try:
        return unread(_number(transport)) > 0
    except (OSError, ValueError):  # the socket is closed
        return False


def spare_from() -> float:
    """The first number of the reserve: a quarter of all, 64 at most."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return inf if limit == resource.RLIM_INFINITY else limit - min(_RESERVE, limit // 4)
