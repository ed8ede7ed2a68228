"""A request under way, and who is told what comes of it."""

from __future__ import annotations

from typing import Any, Protocol


class Call:
    """One request under way; times are of `time.perf_counter`, 0 before there is one.

    `due` is when it was to be sent and `start` when it was. `error` is what a response said inside
    of it. `partial` and `missing` belong to the connection: what came of a message that is not
    whole yet, and how much of it is still to come and not looked at. `tokens` are as
    many as the server says that it made, 0 if it does not say. `whole` gets the messages of gRPC
    where somebody reads them. `sent` are head and body of a request, which a connection sends again
    where the server has refused to look at it, so `refusals` times until now.
    """

    __slots__ = (
        "due",
        "error",
        "first",
        "last",
        "missing",
        "number",
        "partial",
        "payload",
        "refusals",
        "responses",
        "sent",
        "slot",
        "start",
        "streamed",
        "tokens",
        "whole",
        "wire",
    )

    def __init__(self, payload: int, slot: int, due: float, start: float, streamed: bool) -> None:
        self.payload = payload
        self.slot = slot
        self.due = due
        self.start = start
        self.streamed = streamed
        self.first = 0.0
        self.last = 0.0
        self.responses = 0
        self.tokens = 0
        self.error = ""
        self.number = 0
        self.sent = (b"", b"")
        self.refusals = 0
        self.partial = bytearray()
        self.missing = 0
        self.whole: list[bytes] | None = None
        self.wire: Any = None


class Listener(Protocol):
    """Who is told of responses, of the end of calls, and of connections that are gone."""

    def on_response(self, call: Call, now: float) -> None:
        """A response without an error has come."""

    def on_end(self, call: Call, now: float, error: str) -> None:
        """A call has ended; `error` is empty if it went well."""

    def on_lost(self, wire: Wire, reason: str) -> None:
        """A connection is gone; the ends of its calls were told before."""


class Wire(Protocol):
    """A connection to the server."""

    transport: Any

    @property
    def room(self) -> int:
        """How many more calls may be started now."""

    def start(self, call: Call, head: bytes, body: bytes) -> None:
        """Send a request; what comes of it is told to the listener."""

    def cancel(self, call: Call) -> None:
        """Give up a call, of whose end nobody is told."""

    def read(self) -> None:
        """Take what has come."""

    def close(self) -> None:
        """Close the connection, and tell nobody."""
