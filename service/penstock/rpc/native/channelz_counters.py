"""Counting calls and messages for channelz, only where it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from time import time_ns

from penstock.rpc.native.connection import Shell
from penstock.rpc.native.route import Route
from penstock.rpc.native.routes import NotGrpc
from penstock.rpc.native.rpc_call import Call
from penstock.rpc.native.server_state import Endpoint


@dataclass(slots=True)
class ServerTally:
    """Calls of a server since it began, and its open connections by id. Times are in ns."""

    calls_started: int = 0
    calls_succeeded: int = 0
    calls_failed: int = 0
    last_call: int = 0
    shells: dict[int, TalliedShell] = field(default_factory=dict)
    ids: Iterator[int] = field(default_factory=lambda: count(1))


@dataclass(slots=True)
class SocketTally:
    """One connection. Streams that neither failed nor are open have succeeded."""

    streams_started: int = 0
    streams_failed: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    last_stream: int = 0
    last_sent: int = 0
    last_received: int = 0


class TalliedShell(Shell):
    """A connection that counts."""

    def __init__(self, endpoint: Endpoint, server: ServerTally) -> None:
        super().__init__(endpoint)
        self.server = server
        self.tally = SocketTally()
        self.id = next(server.ids)

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    @property
    def streams_succeeded(self) -> int:
        tally = self.tally
        return tally.streams_started - tally.streams_failed - len(self.connection.streams)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.server.shells[self.id] = self

    def connection_lost(self, error: Exception | None) -> None:
        self.server.shells.pop(self.id, None)
        super().connection_lost(error)

    def _open_stream(self, stream_id: int, route: Route) -> Call:
        call = super()._open_stream(stream_id, route)
        call.tally = CallTally(self.tally, None if isinstance(call, NotGrpc) else self.server)
        return call


class CallTally:
    """What one call adds: itself once as begun and once as ended, and its messages.

    A message counts as received when its method takes it. `server` is `None` for a stream that
    is no call.
    """

    __slots__ = ("_server", "_settled", "_socket")

    def __init__(self, socket: SocketTally, server: ServerTally | None) -> None:
        self._socket = socket
        self._server = server
        self._settled = False
        socket.streams_started += 1
        socket.last_stream = time_ns()
        if server is not None:
            server.calls_started += 1
            server.last_call = socket.last_stream

    def received(self) -> None:
        self._socket.messages_received += 1
        self._socket.last_received = time_ns()

    def sent(self) -> None:
        self._socket.messages_sent += 1
        self._socket.last_sent = time_ns()

    def ended(self, *, succeeded: bool) -> None:
        """The status is about to be sent."""
        if not self._settled:
            self._settled = True
            if self._server is not None:
                self._server.calls_succeeded += succeeded
                self._server.calls_failed += not succeeded

    def reset(self) -> None:
        """One side has broken the stream off."""
        self._socket.streams_failed += 1
        self.ended(succeeded=False)
