"""Which streams there were on a connection (RFC 9113 section 5.1), without keeping them all."""

from __future__ import annotations

from collections import deque

from penstock.http2.errors import ErrorCode, ProtocolError, StreamError
from penstock.http2.frames import LARGEST_ID

_GAPS = 64


class StreamIds:
    """`last` is the highest id that was opened; none above `final` is served.

    A stream that is gone ended well unless it is known to have been reset, or to be one of those
    that the peer skipped. Only so many of either are remembered.
    """

    def __init__(self, remembered: int) -> None:
        self.last = 0
        self.final = LARGEST_ID
        self._remembered = remembered
        self._by_us: dict[int, bool] = {}
        self._gaps: deque[range] = deque(maxlen=_GAPS)

    def open(self, stream_id: int) -> None:
        """A stream above all others begins."""
        if stream_id > self.last + 2:
            self._gaps.append(range(self.last + 1, stream_id))
        self.last = stream_id

    def reset(self, stream_id: int, *, by_us: bool) -> None:
        """A stream has ended before its time."""
        self._by_us[stream_id] = by_us
        if len(self._by_us) > self._remembered:
            del self._by_us[next(iter(self._by_us))]

    def check_opened(self, stream_id: int) -> None:
        """Raise unless the stream was opened at some time."""
        if not stream_id or stream_id > self.last or not stream_id & 1:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "frame on a stream that is idle")

    def check_gone(self, stream_id: int) -> None:
        """What to make of DATA or HEADERS on a stream that is not there: raise, or drop them."""
        self.check_opened(stream_id)
        by_us = self._by_us.get(stream_id)
        if by_us:
            return
        if by_us is not None:
            raise StreamError(stream_id, ErrorCode.STREAM_CLOSED, "frame after RST_STREAM")
        if any(stream_id in gap for gap in self._gaps):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "stream id lower than one before")
        raise ProtocolError(ErrorCode.STREAM_CLOSED, "frame after the end of its stream")
