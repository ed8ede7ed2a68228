"""A streaming parser of HTTP/2 frames, for bytes that arrive in pieces of any size."""

from __future__ import annotations

from typing import Protocol

from penstock.http2.frames import (
    ACK,
    END_STREAM,
    HEADER,
    HEADER_SIZE,
    LARGEST_ID,
    PADDED,
    PREFACE,
    ErrorCode,
    FrameType,
    Limits,
    ProtocolError,
    StreamError,
)
from penstock.http2.stream import Stream

_DATA = 0
_KNOWN = len(FrameType)
DIRECT = 64 << 10
"""Bytes from which the rest of a payload is read straight into its message's buffer."""
MOST_FRAMES = 64
"""Frames that are parsed at once, each of which may begin or end a call."""


class FrameHandler(Protocol):
    """Callbacks for parsed frames. They raise `ProtocolError` and `StreamError`."""

    def on_frame(self, kind: int, flags: int, stream_id: int, payload: memoryview) -> None:
        """A whole frame that is not DATA."""

    def on_data_begin(self, flags: int, stream_id: int, size: int) -> Stream | None:
        """A DATA frame begins; returns the stream for its content, `None` to discard it."""

    def on_data_end(self, stream: Stream, ended: bool) -> None:
        """The stream has received all of the frame's content."""

    def on_padding(self, stream: Stream, size: int) -> None:
        """`size` bytes of the stream's DATA frame are padding."""

    def on_unknown(self) -> None:
        """A frame of an unknown type."""

    def on_stream_error(self, error: StreamError) -> None:
        """A frame violates the protocol in a way that ends its stream only."""


class FrameParser:
    """Passes frames to a handler: DATA as its bytes arrive, all others whole.

    The handler sets `opened` after the first SETTINGS, and `block_stream` while the header block
    of that stream is incomplete: only its CONTINUATION may follow. `left` counts the bytes
    expected of a payload that arrives in pieces; from `DIRECT` on, `memory()` may take them.
    `interrupted`: what was not consumed may hold whole frames.
    """

    def __init__(self, limits: Limits, handler: FrameHandler) -> None:
        self.stopped = self.opened = self.interrupted = False
        self.block_stream = 0
        self._max_frame_size = limits.max_frame_size
        self._longest_block = min(limits.longest_block, limits.max_frame_size)
        self._handler = handler
        self._preface = PREFACE
        # The frame whose payload arrives in pieces.
        self.left = 0
        self._padding = 0
        self._padded = False
        self._ends = False
        self._stream: Stream | None = None

    def feed(self, view: memoryview) -> int:
        """Parse received bytes; returns how many are consumed. The rest must be passed again."""
        at, end = self._read_preface(view) if self._preface else 0, len(view)
        frames = 0
        while not self.stopped and frames < MOST_FRAMES:
            frames += 1
            if self.left:
                at = self._payload(view, at, end)
            if self.left or end - at < HEADER_SIZE:
                break
            high, low, kind, flags, stream_id = HEADER.unpack_from(view, at)
            stream_id &= LARGEST_ID
            size = high << 16 | low
            start = at + HEADER_SIZE
            if self.block_stream or not self.opened:
                self._check_order(kind, flags, stream_id)
            if kind == _DATA:
                at = self._data(flags, stream_id, size, view, start, end)
            elif start + size <= end and kind < _KNOWN and size <= self._longest_block:
                at = start + size
                self._frame(kind, flags, stream_id, view[start:at])
            elif self._incomplete(kind, size):
                at = start
            else:
                break
        self.interrupted = frames == MOST_FRAMES and at < end
        return at

    def _frame(self, kind: int, flags: int, stream_id: int, payload: memoryview) -> None:
        try:
            self._handler.on_frame(kind, flags, stream_id, payload)
        except StreamError as error:
            self._handler.on_stream_error(error)

    # -- DATA read straight into the buffer of a message --------------------------------------

    def memory(self) -> memoryview | None:
        """The buffer of a message to read the next bytes into, if many of them are expected."""
        if self.left < DIRECT or self._padded or self._stream is None:
            return None
        memory = self._stream.memory()
        if memory is None or len(memory) < DIRECT:
            return None
        return memory[: self.left - self._padding]

    def filled(self, size: int) -> None:
        """Process `size` bytes that were read into `memory()`."""
        stream = self._stream
        assert stream is not None
        self.left -= size
        stream.on_filled(size)
        if not self.left:
            self._end(stream)

    # -- pieces -------------------------------------------------------------------------------

    def _read_preface(self, view: memoryview) -> int:
        size = min(len(self._preface), len(view))
        if view[:size] != self._preface[:size]:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "this is not HTTP/2")
        self._preface = self._preface[size:]
        return size

    def _check_order(self, kind: int, flags: int, stream_id: int) -> None:
        if not self.opened:
            if kind != FrameType.SETTINGS or flags & ACK:
                raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "SETTINGS have to come first")
        elif kind != FrameType.CONTINUATION or stream_id != self.block_stream:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "frame within a header block")

    def _incomplete(self, kind: int, size: int) -> bool:
        """Check a frame that is large, unknown or incomplete; returns whether to skip it."""
        if size > self._max_frame_size:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "frame larger than allowed")
        if kind < _KNOWN:
            if size > self._longest_block:
                raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "control frame of such a size")
            return False
        self._handler.on_unknown()
        self._begin(0, size)
        return True

    def _begin(self, flags: int, size: int) -> None:
        self._stream = None
        self.left, self._padding = size, 0
        self._padded, self._ends = bool(flags & PADDED), bool(flags & END_STREAM)

    def _data(
        self, flags: int, stream_id: int, size: int, view: memoryview, start: int, end: int
    ) -> int:
        """Pass a DATA frame on if it is complete, else begin to read it in pieces."""
        if size > self._max_frame_size:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "frame larger than allowed")
        if not flags and 0 < size <= end - start:
            return self._run(stream_id, size, view, start, end)
        self._begin(flags, size)
        stream = self._stream_of(flags, stream_id, size)
        if stream is None:
            self._padded = False
            return start
        self._stream = stream
        if self._padded:
            if not size:
                raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "padding without its length")
            return start
        if start + size > end:
            return start
        self.left = 0
        if size:
            stream.on_data(view[start : start + size])
        self._end(stream)
        return start + size

    def _stream_of(self, flags: int, stream_id: int, size: int) -> Stream | None:
        """The stream for a frame's content, `None` to discard it."""
        try:
            return self._handler.on_data_begin(flags, stream_id, size)
        except StreamError as error:
            self._handler.on_stream_error(error)
            return None

    def _run(self, stream_id: int, size: int, view: memoryview, start: int, end: int) -> int:
        """Pass on consecutive complete DATA frames of one stream; returns where they end."""
        at = start + size
        pieces, total, most = [view[start:at]], size, self._max_frame_size
        while end - at >= HEADER_SIZE:
            high, low, kind, flags, number = HEADER.unpack_from(view, at)
            size = high << 16 | low
            stop = at + HEADER_SIZE + size
            same = number == stream_id and kind == _DATA and not flags
            if not same or not 0 < size <= most or stop > end:
                break
            pieces.append(view[at + HEADER_SIZE : stop])
            total += size
            at = stop
        stream = self._stream_of(0, stream_id, total)
        if stream is not None:
            stream.on_pieces(pieces, total)
            self._ends = False
            self._end(stream)
        return at

    def _payload(self, view: memoryview, at: int, end: int) -> int:
        """Pass on a piece of a payload; returns where it ends."""
        if self._padded and at < end:
            self._padded = False
            self._padding = view[at]
            if self._padding >= self.left:
                raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "more padding than payload")
            assert self._stream is not None
            self._handler.on_padding(self._stream, 1 + self._padding)
            self.left -= 1
            at += 1
        size = min(self.left, end - at)
        content = min(size, self.left - self._padding)
        self.left -= size
        stream = self._stream
        if stream is not None and not self._padded:
            if content > 0:
                stream.on_data(view[at : at + content])
            if not self.left:
                self._end(stream)
        return at + size

    def _end(self, stream: Stream) -> None:
        self._stream = None
        try:
            self._handler.on_data_end(stream, self._ends)
        except StreamError as error:
            self._handler.on_stream_error(error)
