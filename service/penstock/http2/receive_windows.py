"""How much a peer may send (RFC 9113 section 5.2): what it used of that, and what it gets back."""

from __future__ import annotations

from penstock.http2 import frames
from penstock.http2.errors import ErrorCode, ProtocolError, StreamError
from penstock.http2.limits import Limits
from penstock.http2.send_buffer import Outbox
from penstock.http2.stream import Stream


class ReceiveWindows:
    """The window of a connection, and those of its streams.

    They are widened by half of them at a time: that of a stream when what came was used, that of
    the connection as it comes, lest streams that nobody reads hold up all others.
    """

    def __init__(self, limits: Limits, outbox: Outbox) -> None:
        self._outbox = outbox
        self._stream_half = limits.stream_window / 2
        self._half = limits.connection_window / 2
        self._left = limits.connection_window
        self._owed = 0

    @property
    def left(self) -> int:
        """Bytes that may still come on the connection."""
        return self._left

    def take(self, size: int) -> None:
        """So many bytes came."""
        self._left -= size
        if self._left < 0:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the window allows")
        self._owed += size
        if self._owed >= self._half:
            self._outbox.say(frames.window_update(0, self._owed))
            self._left += self._owed
            self._owed = 0

    def take_on(self, stream: Stream, size: int) -> None:
        """They are of a stream."""
        stream.receive_left -= size
        if stream.receive_left < 0:
            raise StreamError(stream.id, ErrorCode.FLOW_CONTROL_ERROR, "more DATA than allowed")

    def give_back(self, stream: Stream, size: int) -> None:
        """So many bytes of a stream were used."""
        if stream.remote_ended:
            return
        stream.owed += size
        if stream.owed >= self._stream_half:
            self._outbox.say(frames.window_update(stream.id, stream.owed))
            stream.receive_left += stream.owed
            stream.owed = 0
