"""Limits on the peer of a connection: flow-control windows, token buckets, settings, stream ids."""

from __future__ import annotations

from collections import deque

from penstock.http2 import frames
from penstock.http2.errors import ErrorCode, ProtocolError, StreamError
from penstock.http2.frames import LARGEST_ID, LARGEST_MAX_FRAME, LARGEST_WINDOW, SMALLEST_MAX_FRAME
from penstock.http2.limits import Limits
from penstock.http2.send_buffer import SendBuffer
from penstock.http2.stream import Stream


class ReceiveWindows:
    """The receive windows (flow control) of a connection and of its streams, in bytes.

    Each is widened in steps of half its size: that of a stream when its data is consumed, that of
    the connection as data arrives, so that streams which are not read do not block the others.
    """

    def __init__(self, limits: Limits, send_buffer: SendBuffer) -> None:
        self._send_buffer = send_buffer
        self._stream_half = limits.stream_window / 2
        self._half = limits.connection_window / 2
        self._left = limits.connection_window
        self._owed = 0

    @property
    def left(self) -> int:
        """Bytes that the peer may still send on the connection."""
        return self._left

    def receive(self, size: int) -> None:
        """Account for `size` received bytes on the connection's window."""
        self._left -= size
        if self._left < 0:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the window allows")
        self._owed += size
        if self._owed >= self._half:
            self._send_buffer.queue(frames.window_update(0, self._owed))
            self._left += self._owed
            self._owed = 0

    def receive_on_stream(self, stream: Stream, size: int) -> None:
        """Account for `size` received bytes on the stream's window."""
        stream.receive_left -= size
        if stream.receive_left < 0:
            raise StreamError(stream.id, ErrorCode.FLOW_CONTROL_ERROR, "more DATA than allowed")

    def return_credit(self, stream: Stream, size: int) -> None:
        """Return the credit of `size` consumed bytes to the stream's window."""
        if stream.remote_ended:
            return
        stream.owed += size
        if stream.owed >= self._stream_half:
            self._send_buffer.queue(frames.window_update(stream.id, stream.owed))
            stream.receive_left += stream.owed
            stream.owed = 0


class TokenBucket:
    """A token bucket for frames that cost us more than the peer; `rate` is tokens per second."""

    __slots__ = ("_burst", "_left", "_name", "_rate", "_since")

    def __init__(self, name: str, burst: int, rate: float) -> None:
        self._name = name
        self._burst = self._left = float(burst)
        self._rate = rate
        self._since = 0.0

    def spend(self, now: float) -> None:
        """Take a token, at the time `now` in seconds; raises `ProtocolError` if there is none."""
        self._left = min(self._burst, self._left + (now - self._since) * self._rate) - 1
        self._since = now
        if self._left < 0:
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, f"too many {self._name}")


HEADER_TABLE_SIZE = 1
ENABLE_PUSH = 2
MAX_CONCURRENT_STREAMS = 3
INITIAL_WINDOW_SIZE = 4
MAX_FRAME_SIZE = 5
MAX_HEADER_LIST_SIZE = 6

_MOST_PER_FRAME = 64


def server_settings(limits: Limits) -> list[tuple[int, int]]:
    """The settings that the server sends."""
    return [
        (HEADER_TABLE_SIZE, limits.header_table_size),
        (MAX_CONCURRENT_STREAMS, limits.max_concurrent_streams),
        (INITIAL_WINDOW_SIZE, limits.stream_window),
        (MAX_FRAME_SIZE, limits.max_frame_size),
        (MAX_HEADER_LIST_SIZE, limits.max_header_list_size),
    ]


def check_settings(values: list[tuple[int, int]]) -> None:
    """Raise `ProtocolError` for values that are not allowed."""
    if len(values) > _MOST_PER_FRAME:
        raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "too many settings")
    for name, value in values:
        if name == ENABLE_PUSH and value > 1:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
        if name == INITIAL_WINDOW_SIZE and value > LARGEST_WINDOW:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large")
        if name == MAX_FRAME_SIZE and not SMALLEST_MAX_FRAME <= value <= LARGEST_MAX_FRAME:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of range")


_GAPS = 64


class StreamIds:
    """The ids of closed streams: how each has ended, to judge late frames on it.

    `last` is the highest id that was opened; ids above `final` are not served. A closed stream
    has ended normally unless it is recorded as reset, or as skipped by the peer. At most
    `by_server` ids that the server has reset are recorded (as many as may be open at once, since
    frames on all of these may be in flight), and `by_peer` that the peer has.
    """

    def __init__(self, by_server: int, by_peer: int) -> None:
        self.last = 0
        self.final = LARGEST_ID
        self._most_by_server, self._most_by_peer = by_server, by_peer
        self._reset_by_server: dict[int, None] = {}
        self._reset_by_peer: dict[int, None] = {}
        self._gaps: deque[range] = deque(maxlen=_GAPS)

    def open(self, stream_id: int) -> None:
        """Record a new stream, whose id is above all others."""
        if stream_id > self.last + 2:
            self._gaps.append(range(self.last + 1, stream_id))
        self.last = stream_id

    def reset(self, stream_id: int, *, by_server: bool) -> None:
        """Record a stream that was reset."""
        recorded, most = self._reset_by_peer, self._most_by_peer
        if by_server:
            recorded, most = self._reset_by_server, self._most_by_server
        recorded[stream_id] = None
        if len(recorded) > most:
            del recorded[next(iter(recorded))]

    def check_opened(self, stream_id: int) -> None:
        """Raise unless the stream was opened at some time."""
        if not stream_id or stream_id > self.last or not stream_id & 1:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "frame on a stream that is idle")

    def check_gone(self, stream_id: int) -> None:
        """Judge DATA or HEADERS on a closed stream: raise, or return if they are to be ignored."""
        self.check_opened(stream_id)
        if stream_id in self._reset_by_server:
            return
        if stream_id in self._reset_by_peer:
            raise StreamError(stream_id, ErrorCode.STREAM_CLOSED, "frame after RST_STREAM")
        if any(stream_id in gap for gap in self._gaps):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "stream id lower than one before")
        raise ProtocolError(ErrorCode.STREAM_CLOSED, "frame after the end of its stream")
