"""The interface between channelz and transports: counters of a server and its connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from penstock.protocol import channelz_pb2 as pb


class ChannelzSource(Protocol):
    """The counters of a transport. Ids are positive; lists are in the order of ids.

    Raises `KeyError` for an id that does not exist, or no longer.
    """

    def servers(self, start: int) -> Iterator[pb.Server]:
        """The servers of this process whose ids are not below `start`."""

    def server(self, server_id: int) -> pb.Server:
        """One server."""

    def sockets(self, server_id: int, start: int) -> Iterator[pb.SocketRef]:
        """The open connections to a server whose ids are not below `start`."""

    def socket(self, socket_id: int) -> pb.Socket:
        """A connection, or a listening socket."""


class ChannelzRegistry:
    """The registry of a transport's `source`, set before the first call is served.

    A transport that gets no registry need not count.
    """

    source: ChannelzSource
