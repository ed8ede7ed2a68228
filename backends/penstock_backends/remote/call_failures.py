"""Errors of a remote server as clients of this one see them."""

from __future__ import annotations

from penstock.backend import (
    AlreadyExistsError,
    DeadlineExceededError,
    ExhaustedError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    RequestCancelledError,
    UnavailableError,
    UnsupportedError,
)
from penstock_backends.remote.grpc_connection import (
    CANCELLED,
    EXHAUSTED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    CallStatus,
)

_KINDS: dict[int, type[InferenceError]] = {
    1: RequestCancelledError,
    3: InvalidRequestError,
    4: DeadlineExceededError,
    5: NotFoundError,
    6: AlreadyExistsError,
    9: InvalidRequestError,
    11: InvalidRequestError,
    12: UnsupportedError,
    13: InternalError,
    14: UnavailableError,
    15: InternalError,
}
_CREDENTIALS = {7: "has no permission for this server", 16: "does not know this server"}
_LONGEST_WAIT = 3600  # seconds after which a remote may tell a client to come again


def error_of(status: CallStatus, address: object) -> InferenceError:
    """The error of a call that has failed: the remote's own has its code and its text.

    What is wrong between the two servers, such as this one's credentials, is no fault of the
    client's: UNAVAILABLE, with the address.
    """
    code, text = status.code, status.message
    if status.ours or code in _CREDENTIALS:
        why = _CREDENTIALS.get(code)
        told = text if why is None else f"the remote {why}: {text}".rstrip(": ")
        kind = (
            UnavailableError if code in (UNAVAILABLE, CANCELLED, *_CREDENTIALS) else InternalError
        )
        return kind(f"remote {address}: {told}")
    if code == EXHAUSTED:
        return ExhaustedError(text, _retry_after(status))
    return _KINDS.get(code, InferenceError)(text or f"the remote failed with gRPC code {code}")


def reason_of(status: CallStatus, method: str, protocol: str) -> str:
    """Why a question of this server's own was not answered, such as one after health.

    A server that has not the method is another engine, or one of another version.
    """
    if status.code == UNIMPLEMENTED:
        return f"it does not serve {method}, which 'protocol' {protocol} needs"
    return status.message or f"{method} failed with gRPC code {status.code}"


def _retry_after(status: CallStatus) -> int:
    given = status.trailers.get(b"retry-after", b"")
    return min(int(given), _LONGEST_WAIT) if given.isdigit() and len(given) < 9 else 1
