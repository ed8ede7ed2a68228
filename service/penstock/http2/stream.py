"""One request and its answer, as the connection sees them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.http2.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.http2.connection import Connection

Buffer = bytes | bytearray | memoryview


class Stream:
    """What the connection keeps of a stream; who serves it derives from this class.

    The connection owns every field here. It calls the `on_` methods; none of them may raise.
    Defaults stand on the class, so that a new stream sets only what differs.
    """

    # From us to the peer.
    answered = False  # headers are out
    finished = False  # END_STREAM is out or will follow what waits
    waiting: deque[Buffer] | None = None
    waiting_size = 0
    trailers: bytes | None = None

    # From the peer to us.
    remote_ended = False
    owed = 0  # bytes used and not yet given back
    content_left: int | None = None

    closed = False

    def __init__(self, connection: Connection[Any], stream_id: int) -> None:
        self.connection = connection
        self.id = stream_id
        self.window = connection.outbox.initial_window
        self.receive_left = connection.limits.stream_window

    def on_open(self) -> None:
        """The stream is there, and may be answered."""

    def on_data(self, data: memoryview) -> None:
        """Bytes of the request, which are valid only now. `consumed` gives them back."""

    def on_pieces(self, pieces: Sequence[memoryview], size: int) -> None:
        """As `on_data`, for bytes that came in several frames; `size` is their number."""
        for piece in pieces:
            self.on_data(piece)

    def on_end(self) -> None:
        """The request is complete."""

    def on_reset(self, code: ErrorCode) -> None:
        """The stream has ended before its time; nothing can be sent any more."""

    def on_writable(self) -> None:
        """What waited has gone out, as far as that it makes sense to go on."""

    def memory(self) -> memoryview | None:
        """Where the next bytes of the request may be read to, if that is already known."""
        return None

    def on_filled(self, size: int) -> None:
        """So many bytes were read into `memory()`."""
