"""The peer's settings (RFC 9113 section 6.5.2): what they may be, and what we keep of them."""

from __future__ import annotations

from penstock.http2.errors import ErrorCode, ProtocolError
from penstock.http2.frames import LARGEST_MAX_FRAME, LARGEST_WINDOW, SMALLEST_MAX_FRAME
from penstock.http2.limits import Limits

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
