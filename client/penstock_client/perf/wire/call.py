"""A request in flight, and the listener to which its responses and its end are reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Request = tuple[bytes, ...]
"""The bytes of a request, made once: in parts, where a wire puts the number of a stream between."""


class Call:
    """One request under way; times are of `time.perf_counter`, 0 before there is one.

    `due` is when it was to be sent and `start` when it was. `error` is what a response said inside
    of it. `partial`, `missing` and `in_frames` belong to the connection: what came of a message
    that is not whole yet, how much of it is still to come and not looked at, and whether there is
    neither, nor anybody who reads messages. `tokens` are as many as the server says that it made, 0
    if it does not say. `whole` gets the messages of gRPC, or events, where somebody reads them.
    `sent` is the request, which a connection sends again where the server has refused to look at
    it.
    """

    # Most calls leave these as they are: no instance has them until they are set.
    first: float = 0.0
    last: float = 0.0
    responses: int = 0
    tokens: int = 0
    error: str = ""
    number: int = 0
    sent: Request = ()
    partial: bytearray | None = None
    missing: int = 0
    in_frames: bool = True
    whole: list[bytes] | None = None

    def __init__(
        self, payload: int, slot: int, due: float, start: float, streamed: bool, wire: Any = None
    ) -> None:
        self.payload = payload
        self.slot = slot
        self.due = due
        self.start = start
        self.streamed = streamed
        self.wire = wire


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

    @property
    def under_way(self) -> Sequence[Call]:
        """The calls that have not ended."""

    def start(self, call: Call, request: Request) -> None:
        """Send a request with the next `flush`; the listener gets its responses and its end."""

    def flush(self) -> None:
        """Send the calls that were started; those of a listener's callbacks are sent anyway."""

    def cancel(self, call: Call) -> None:
        """Cancel a call; its end is not reported."""

    def read(self, wait: bool = False) -> None:
        """Take what has come; `wait` for it, though not for long, unless there is TLS."""

    def close(self) -> None:
        """Close the connection; nothing is reported."""
