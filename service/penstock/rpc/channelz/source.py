"""The seam between channelz and transports: a server, and the connections to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from penstock.protocol import channelz_pb2 as pb


class Connections(Protocol):
    """What a transport has counted. Ids are positive; lists are in the order of ids.

    Raises `KeyError` for an id that nothing has, or has any more.
    """

    def servers(self, start: int) -> Iterator[pb.Server]:
        """The servers of this process whose ids are not below `start`."""

    def server(self, server_id: int) -> pb.Server:
        """One server."""

    def sockets(self, server_id: int, start: int) -> Iterator[pb.SocketRef]:
        """The open connections to a server whose ids are not below `start`."""

    def socket(self, socket_id: int) -> pb.Socket:
        """A connection, or where a server listens."""


class Directory:
    """Where a transport leaves its `connections` as it opens, before it serves the first call.

    A transport that gets none need not count.
    """

    connections: Connections
