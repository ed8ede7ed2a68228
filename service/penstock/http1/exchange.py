"""One request of a connection and its response."""

from __future__ import annotations

from penstock.http1.body import Body
from penstock.http1.request_head import RequestHead


class Exchange:
    """A request, and how far its response is.

    `answered` says that the response has begun, `finished` that it has ended, `closed` that the
    client has gone. Derived classes override what the connection calls.
    """

    begun = False
    answered = False
    finished = False
    closed = False
    chunked = False
    continued = False
    sent = 0
    """Bytes of the response's body."""

    def __init__(self, head: RequestHead) -> None:
        self.head = head
        self.body = Body(head.content_length)

    def on_begin(self) -> None:
        """Answer the request, whose body may still be incomplete. Called once."""

    def on_body(self) -> None:
        """More of the body has arrived, or its end."""

    def on_writable(self) -> None:
        """The response may go on: see `SendBuffer.writable`."""

    def on_closed(self) -> None:
        """The client has gone before the end of the response. Called once."""
