"""Limits on the peer of a connection: flow-control windows, token buckets, settings, stream ids."""

from __future__ import annotations

from collections import deque

from penstock.http2 import frames
from penstock.http2.errors import ErrorCode, ProtocolError, StreamError
from penstock.http2.frames import LARGEST_ID, LARGEST_MAX_FRAME, LARGEST_WINDOW, SMALLEST_MAX_FRAME
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


class Patience:
    """A burst of events that refills at a rate. Knows no clock: it is told the time, in seconds."""

    __slots__ = ("_burst", "_left", "_name", "_rate", "_since")

    def __init__(self, name: str, burst: int, rate: float) -> None:
        self._name = name
        self._burst = self._left = float(burst)
        self._rate = rate
        self._since = 0.0

    def spend(self, now: float) -> None:
        """One more event; raises `ProtocolError` when there were too many."""
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


def ours(limits: Limits) -> list[tuple[int, int]]:
    """What we tell the peer."""
    return [
        (HEADER_TABLE_SIZE, limits.header_table_size),
        (MAX_CONCURRENT_STREAMS, limits.max_concurrent_streams),
        (INITIAL_WINDOW_SIZE, limits.stream_window),
        (MAX_FRAME_SIZE, limits.max_frame_size),
        (MAX_HEADER_LIST_SIZE, limits.max_header_list_size),
    ]


def check(values: list[tuple[int, int]]) -> None:
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
    """`last` is the highest id that was opened; none above `final` is served.

    A stream that is gone ended well unless it is known to have been reset, or to be one of those
    that the peer skipped. Only so many of each are remembered: of those that we have reset, `ours`,
    which are as many as may be open at once, since frames on all of these may be under way.
    """

    def __init__(self, ours: int, theirs: int) -> None:
        self.last = 0
        self.final = LARGEST_ID
        self._most_ours, self._most_theirs = ours, theirs
        self._ours: dict[int, None] = {}
        self._theirs: dict[int, None] = {}
        self._gaps: deque[range] = deque(maxlen=_GAPS)

    def open(self, stream_id: int) -> None:
        """A stream above all others begins."""
        if stream_id > self.last + 2:
            self._gaps.append(range(self.last + 1, stream_id))
        self.last = stream_id

    def reset(self, stream_id: int, *, by_us: bool) -> None:
        """A stream has ended before its time."""
        known, most = self._theirs, self._most_theirs
        if by_us:
            known, most = self._ours, self._most_ours
        known[stream_id] = None
        if len(known) > most:
            del known[next(iter(known))]

    def check_opened(self, stream_id: int) -> None:
        """Raise unless the stream was opened at some time."""
        if not stream_id or stream_id > self.last or not stream_id & 1:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "frame on a stream that is idle")

    def check_gone(self, stream_id: int) -> None:
        """What to make of DATA or HEADERS on a stream that is not there: raise, or drop them."""
        self.check_opened(stream_id)
        if stream_id in self._ours:
            return
        if stream_id in self._theirs:
            raise StreamError(stream_id, ErrorCode.STREAM_CLOSED, "frame after RST_STREAM")
        if any(stream_id in gap for gap in self._gaps):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "stream id lower than one before")
        raise ProtocolError(ErrorCode.STREAM_CLOSED, "frame after the end of its stream")
