"""The connections of a process: opened when they are needed, and again after they were lost."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

from penstock_client.perf.wire.call import Listener, Wire
from penstock_client.perf.wire.endpoint import Endpoint
from penstock_client.perf.wire.grpc import GrpcWire
from penstock_client.perf.wire.http import HttpWire

RETRY_SECONDS = 0.2
"""Seconds after a failed connection until the next is tried."""


class Pool:
    """Connections to one endpoint; those of gRPC bear many calls each, those of HTTP one."""

    def __init__(
        self, endpoint: Endpoint, http: bool, most: int, listener: Listener, poll: select.epoll
    ) -> None:
        self._endpoint = endpoint
        self._open: Callable[[Endpoint, Listener], Wire] = HttpWire if http else GrpcWire
        self._http = http
        self._most = most
        self._listener = listener
        self._poll = poll
        self._turn = 0
        self._not_before = 0.0
        self.wires: dict[int, Wire] = {}
        self._free: list[Wire] = []
        self._list: list[Wire] = []
        self.only: Wire | None = None
        """The connection, where there is one and its reads can wait."""
        self.problem = ""
        """Why the last connection could not be opened; empty if it could."""

    def fill(self, count: int) -> None:
        """Open connections in advance; raises `OSError`."""
        while len(self.wires) < min(count, self._most):
            self._add()

    def take(self) -> Wire | None:
        """A connection with room for a call, if there is one or one can be opened."""
        if self._http:
            while self._free:
                wire = self._free.pop()
                if wire.room:
                    return wire
            wire_or_none = self._opened()
            if wire_or_none is not None:
                self._free.remove(wire_or_none)
            return wire_or_none
        if len(self._list) < self._most:
            self._opened()
        for _ in self._list:
            self._turn = (self._turn + 1) % len(self._list)
            if self._list[self._turn].room > 0:
                return self._list[self._turn]
        return None

    def give_back(self, wire: Wire) -> None:
        """A call on this connection has ended."""
        if self._http and wire.room:
            self._free.append(wire)

    def drop(self, wire: Wire) -> None:
        """A connection is gone."""
        number = wire.transport.fileno()
        if self.wires.pop(number, None) is not None:
            self._poll.unregister(number)
            self._list.remove(wire)
            self._note_only()
            wire.close()

    def close(self) -> None:
        """Close all connections."""
        for wire in list(self._list):
            self.drop(wire)

    def _opened(self) -> Wire | None:
        if len(self.wires) >= self._most or time.perf_counter() < self._not_before:
            return None
        try:
            wire = self._add()
        except OSError as error:
            self._not_before = time.perf_counter() + RETRY_SECONDS
            self.problem = error.strerror or str(error)
            return None
        self.problem = ""
        return wire

    def _add(self) -> Wire:
        wire = self._open(self._endpoint, self._listener)
        number = wire.transport.fileno()
        self._poll.register(number, select.EPOLLIN)
        wire.transport.on_blocked = lambda: self._poll.modify(
            number, select.EPOLLIN | select.EPOLLOUT
        )
        if wire.transport.blocked:
            wire.transport.on_blocked()
        self.wires[number] = wire
        self._list.append(wire)
        self._note_only()
        self._free.append(wire)
        return wire

    def _note_only(self) -> None:
        first = self._list[0] if len(self._list) == 1 else None
        self.only = first if first is not None and first.transport.waits else None
