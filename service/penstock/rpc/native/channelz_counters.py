"""Channelz counters of the native transport: calls of a server, streams of a connection."""

from __future__ import annotations

from dataclasses import dataclass
from time import time_ns


@dataclass(slots=True)
class ServerCounters:
    """Calls of a server since it started. `last_call` is in nanoseconds since the epoch."""

    calls_started: int = 0
    calls_succeeded: int = 0
    calls_failed: int = 0
    last_call: int = 0


@dataclass(slots=True)
class SocketCounters:
    """Streams and messages of one connection; times are in nanoseconds since the epoch.

    Streams that neither failed nor are open have succeeded.
    """

    streams_started: int = 0
    streams_failed: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    last_stream: int = 0
    last_sent: int = 0
    last_received: int = 0


class CallCounters:
    """Adds one call to the counters: its start and its end, once each, and its messages.

    A message counts as received when its method takes it. `server` is `None` for a stream that
    is not a gRPC call.
    """

    __slots__ = ("_ended", "_server", "_socket")

    def __init__(self, socket: SocketCounters, server: ServerCounters | None) -> None:
        self._socket = socket
        self._server = server
        self._ended = False
        socket.streams_started += 1
        socket.last_stream = time_ns()
        if server is not None:
            server.calls_started += 1
            server.last_call = socket.last_stream

    def message_received(self) -> None:
        self._socket.messages_received += 1
        self._socket.last_received = time_ns()

    def message_sent(self) -> None:
        self._socket.messages_sent += 1
        self._socket.last_sent = time_ns()

    def call_ended(self, *, succeeded: bool) -> None:
        """Count the outcome, when the status is about to be sent."""
        if not self._ended:
            self._ended = True
            if self._server is not None:
                self._server.calls_succeeded += succeeded
                self._server.calls_failed += not succeeded

    def stream_reset(self) -> None:
        """Count a stream that the client or the server has reset."""
        self._socket.streams_failed += 1
        self.call_ended(succeeded=False)
