"""The state of one HTTP/2 stream: its flow-control windows, and events for its handler."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.http2.frames import ErrorCode

Buffer = bytes | bytearray | memoryview


class Stream:
    """State of a stream and callbacks for its events; handlers of requests derive from it.

    The connection owns every field here, and calls the `on_` methods; none of them may raise.
    Defaults are class attributes, so that a new stream sets only what differs. Windows are in
    bytes.
    """

    # Response: from the server to the peer.
    answered = False  # headers are sent
    finished = False  # END_STREAM is sent, or follows the data that is queued
    waiting: deque[Buffer] | None = None
    waiting_size = 0
    trailers: bytes | None = None

    # Request: from the peer to the server.
    remote_ended = False
    owed = 0  # bytes consumed, whose credit is not yet returned
    content_left: int | None = None

    closed = False

    def __init__(self, stream_id: int, window: int, receive_left: int) -> None:
        self.id = stream_id
        self.window = window
        self.receive_left = receive_left

    def on_open(self) -> None:
        """The stream is open, and may be answered."""

    def on_data(self, data: memoryview) -> None:
        """Bytes of the request, valid only during the call. `consumed` returns their credit."""

    def on_pieces(self, pieces: Sequence[memoryview], size: int) -> None:
        """As `on_data`, for the payloads of several frames; `size` is their total."""
        for piece in pieces:
            self.on_data(piece)

    def on_end(self) -> None:
        """The request is complete."""

    def on_reset(self, code: ErrorCode) -> None:
        """The stream was reset; nothing more can be sent."""

    def on_writable(self) -> None:
        """The queued data is sent, so that more may be written."""

    def memory(self) -> memoryview | None:
        """The buffer for the next bytes of the request, if it is already allocated."""
        return None

    def on_filled(self, size: int) -> None:
        """`size` bytes were read into `memory()`."""
