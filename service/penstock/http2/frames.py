"""HTTP/2 frames (RFC 9113 sections 4 and 6), error codes (section 7), limits of a connection."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class ErrorCode(IntEnum):
    """Reasons to reset a stream or to terminate a connection."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class ProtocolError(Exception):
    """A violation of the protocol that terminates the connection."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.code = code
        self.reason = reason


class StreamError(Exception):
    """A violation of the protocol that resets one stream; the others continue."""

    def __init__(self, stream_id: int, code: ErrorCode, reason: str) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.stream_id = stream_id
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one connection. Sizes are in bytes, rates per second.

    A connection without streams holds a few KiB. Beyond that it holds at most: one incomplete
    message per stream (up to `max_message_size`, grown as it arrives); complete messages that its
    method has not read yet, up to `stream_window` per stream; one queued response message per
    stream, and the send buffer. Frames that do no work (`idle_*`) and streams that the client
    resets (`reset_*`) take tokens from a bucket; a client that empties it is disconnected with
    ENHANCE_YOUR_CALM. Streams that were reset while their handlers still run count against
    `max_lingering_streams` only.

    `max_control_size` bounds messages that carry no tensors or files. A compressed message may
    unpack to `small_inflated_size` bytes, and beyond that to `max_inflation` times its own size:
    who wants more memory of the server has to send more.
    """

    max_concurrent_streams: int = 1024
    max_lingering_streams: int = 2048
    max_frame_size: int = 1 << 20
    max_header_list_size: int = 64 << 10
    header_table_size: int = 4096
    max_continuations: int = 32
    stream_window: int = 4 << 20
    connection_window: int = 16 << 20
    max_message_size: int = (1 << 31) - 1
    max_control_size: int = 1 << 20
    max_inflated_size: int = 512 << 20
    max_inflation: int = 64
    small_inflated_size: int = 64 << 20
    max_unsent_control: int = 256 << 10
    remembered_resets: int = 1000
    idle_burst: int = 1000
    idle_rate: float = 200.0
    reset_burst: int = 10_000
    reset_rate: float = 1000.0

    def largest(self, *, control: bool) -> int:
        """Bytes of the largest message; `control` is for those without tensors or files."""
        return (
            min(self.max_message_size, self.max_control_size) if control else self.max_message_size
        )

    def most_inflated(self, packed: int, most: int) -> int:
        """Bytes that a message of `packed` bytes may unpack to, where `most` is its limit."""
        return min(
            most, self.max_inflated_size, max(self.small_inflated_size, self.max_inflation * packed)
        )

    @property
    def longest_block(self) -> int:
        """Bytes of the longest header block: no more than of its decoded fields."""
        return self.max_header_list_size


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

HEADER = struct.Struct(">BHBBL")
"""Length (high byte, low two), type, flags, stream id."""
HEADER_SIZE = 9

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20

LARGEST_ID = LARGEST_WINDOW = (1 << 31) - 1
SMALLEST_MAX_FRAME, LARGEST_MAX_FRAME = 1 << 14, (1 << 24) - 1

_SETTING = struct.Struct(">HL")
_WORD = struct.Struct(">L")
_TWO_WORDS = struct.Struct(">LL")


class FrameType(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """A frame of any type; the payload must not exceed the peer's MAX_FRAME_SIZE."""
    size = len(payload)
    return HEADER.pack(size >> 16, size & 0xFFFF, kind, flags, stream_id) + payload


def headers(stream_id: int, block: bytes, max_frame: int, *, end_stream: bool) -> bytes:
    """A header block in one HEADERS frame and as many CONTINUATION frames as it takes."""
    flags = END_STREAM if end_stream else 0
    if len(block) <= max_frame:
        return frame(FrameType.HEADERS, flags | END_HEADERS, stream_id, block)
    pieces = [block[at : at + max_frame] for at in range(0, len(block), max_frame)]
    frames = [frame(FrameType.HEADERS, flags, stream_id, pieces[0])]
    frames += [frame(FrameType.CONTINUATION, 0, stream_id, piece) for piece in pieces[1:-1]]
    frames.append(frame(FrameType.CONTINUATION, END_HEADERS, stream_id, pieces[-1]))
    return b"".join(frames)


def settings(values: Iterable[tuple[int, int]]) -> bytes:
    """A SETTINGS frame of identifiers and values."""
    return frame(FrameType.SETTINGS, 0, 0, b"".join(_SETTING.pack(*pair) for pair in values))


def settings_ack() -> bytes:
    """The acknowledgement of the peer's SETTINGS."""
    return frame(FrameType.SETTINGS, ACK, 0)


def ping(payload: bytes, *, ack: bool = False) -> bytes:
    """A PING with a payload of 8 bytes, or the reply to one."""
    return frame(FrameType.PING, ACK if ack else 0, 0, payload)


def goaway(last_stream_id: int, code: ErrorCode, reason: str = "") -> bytes:
    """A GOAWAY: streams above `last_stream_id` are not served."""
    payload = _TWO_WORDS.pack(last_stream_id, code) + reason.encode()[:256]
    return frame(FrameType.GOAWAY, 0, 0, payload)


def rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    """A RST_STREAM frame."""
    return frame(FrameType.RST_STREAM, 0, stream_id, _WORD.pack(code))


def window_update(stream_id: int, increment: int) -> bytes:
    """Credit for `increment` more bytes; stream 0 is the connection."""
    return frame(FrameType.WINDOW_UPDATE, 0, stream_id, _WORD.pack(increment))


def read_settings(payload: memoryview) -> list[tuple[int, int]]:
    """Identifiers and values of a SETTINGS payload."""
    if len(payload) % _SETTING.size:
        raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a broken length")
    return list(_SETTING.iter_unpack(payload))


def read_word(payload: memoryview, name: str) -> int:
    """The only number in a payload of 4 bytes."""
    if len(payload) != _WORD.size:
        raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, f"{name} of a wrong length")
    word: int = _WORD.unpack(payload)[0]
    return word


def unpadded(flags: int, payload: memoryview) -> memoryview:
    """The payload without its padding (section 6.1)."""
    if not flags & PADDED:
        return payload
    if not payload:
        raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "padded frame without a length of padding")
    padding = payload[0]
    if padding >= len(payload):
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - padding]


def fragment(flags: int, stream_id: int, payload: memoryview) -> memoryview:
    """The header block fragment of a HEADERS payload; its priority is checked and ignored."""
    payload = unpadded(flags, payload)
    if not flags & PRIORITY:
        return payload
    if len(payload) < 5:
        raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "HEADERS too short for its priority")
    check_dependency(stream_id, payload)
    return payload[5:]


def check_dependency(stream_id: int, payload: memoryview) -> None:
    """RFC 7540 5.3.1: a stream cannot depend on itself."""
    if _WORD.unpack_from(payload)[0] & LARGEST_ID == stream_id:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "stream depends on itself")
