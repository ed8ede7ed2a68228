"""Which streams there were on a connection (RFC 9113 section 5.1), without keeping them all."""

from __future__ import annotations

from collections import deque

from penstock.http2.errors import ErrorCode, ProtocolError, StreamError
from penstock.http2.frames import LARGEST_ID

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
