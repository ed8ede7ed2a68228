"""Maps error classes of the core to gRPC status codes, in the only table of both."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from urllib.parse import quote_from_bytes

from penstock.core.errors import (
    AlreadyExistsError,
    DataLossError,
    DeadlineExceededError,
    ExhaustedError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    RequestCancelledError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedError,
)


class StatusCode(IntEnum):
    """gRPC status codes by their numbers."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_LONGEST_TEXT = 6144

STOPPED = "GRPC server is shutting down and has stopped accepting new requests."
"""Status message of calls that end with the server (contract G-35)."""

_CODES: dict[type[InferenceError], StatusCode] = {
    InternalError: StatusCode.INTERNAL,
    NotFoundError: StatusCode.NOT_FOUND,
    InvalidRequestError: StatusCode.INVALID_ARGUMENT,
    UnavailableError: StatusCode.UNAVAILABLE,
    ExhaustedError: StatusCode.RESOURCE_EXHAUSTED,
    UnsupportedError: StatusCode.UNIMPLEMENTED,
    UnauthenticatedError: StatusCode.UNAUTHENTICATED,
    PermissionDeniedError: StatusCode.PERMISSION_DENIED,
    AlreadyExistsError: StatusCode.ALREADY_EXISTS,
    RequestCancelledError: StatusCode.CANCELLED,
    DeadlineExceededError: StatusCode.DEADLINE_EXCEEDED,
    OutOfRangeError: StatusCode.OUT_OF_RANGE,
    DataLossError: StatusCode.DATA_LOSS,
}


def status_code(error: InferenceError) -> StatusCode:
    """The code of the nearest known class of `error` (contract G-31)."""
    known = (_CODES[cls] for cls in type(error).__mro__ if cls in _CODES)
    return next(known, StatusCode.UNKNOWN)


def retry_metadata(error: BaseException) -> Sequence[tuple[str, str]]:
    """Trailing metadata with the seconds after which to try again, where the error has them."""
    return [("retry-after", str(error.retry_after))] if isinstance(error, ExhaustedError) else ()


def replace_surrogates(text: str) -> str:
    """`text` as protobuf accepts it: lone surrogates, which are not characters, become `?`."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def truncate_message(message: str) -> str:
    """Truncate a status message: clients refuse trailers of more than 8 KiB.

    Percent-encoding takes three bytes for each byte of a character beyond ASCII.
    """
    short = len(message) <= _LONGEST_TEXT
    data = message[:_LONGEST_TEXT].encode(errors="replace")
    if short and len(quote_from_bytes(data)) <= _LONGEST_TEXT:
        return data.decode()
    return data[: _LONGEST_TEXT // 3].decode(errors="ignore") + " ... (cut; see the server's log)"
