"""The connection protocol with channelz counters, used only where channelz is switched on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from penstock.rpc.native.channelz_counters import CallCounters, ServerCounters, SocketCounters
from penstock.rpc.native.connection import ConnectionProtocol
from penstock.rpc.native.routes import CallRoute, HeaderFields, NotGrpcCall
from penstock.rpc.native.rpc_call import RpcCall
from penstock.rpc.native.server_state import ServerState


@dataclass(slots=True)
class CountedServer:
    """Counters of a server, and its open connections by their channelz id."""

    counters: ServerCounters = field(default_factory=ServerCounters)
    connections: dict[int, CountingConnection] = field(default_factory=dict)
    ids: Iterator[int] = field(default_factory=lambda: count(1))


class CountingConnection(ConnectionProtocol):
    """A connection that counts its streams, calls and messages."""

    def __init__(
        self,
        server: ServerState,
        read: Callable[[HeaderFields], CallRoute],
        counted: CountedServer,
    ) -> None:
        super().__init__(server, read)
        self.counters = SocketCounters()
        self.id = next(counted.ids)
        self._counted = counted

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    @property
    def streams_succeeded(self) -> int:
        counters = self.counters
        open_streams = len(self.connection.streams)
        return counters.streams_started - counters.streams_failed - open_streams

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._counted.connections[self.id] = self

    def connection_lost(self, error: Exception | None) -> None:
        self._counted.connections.pop(self.id, None)
        super().connection_lost(error)

    def _open_stream(self, stream_id: int, route: CallRoute) -> RpcCall:
        call = super()._open_stream(stream_id, route)
        server = None if isinstance(call, NotGrpcCall) else self._counted.counters
        call.counters = CallCounters(self.counters, server)
        return call
