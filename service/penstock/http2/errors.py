"""HTTP/2 error codes (RFC 9113 section 7), and the exceptions that carry them."""

from __future__ import annotations

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
