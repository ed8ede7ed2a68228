"""Errors in OpenAI's form: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

from typing import Final

from penstock.core.errors import (
    DeadlineExceededError,
    ExhaustedError,
    InferenceError,
    NoRoomError,
    NotFoundError,
    PermissionDeniedError,
    RequestCancelledError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedError,
)
from penstock.gateway.json.text import dump
from penstock.gateway.replies import AUTHENTICATE, BEARER, Reply, reply

RETRY_AFTER: Final = "retry-after"

_KINDS: tuple[tuple[type[InferenceError], int, str], ...] = (
    (NotFoundError, 404, "not_found_error"),
    (NoRoomError, 503, "service_unavailable_error"),
    (ExhaustedError, 429, "rate_limit_error"),
    (UnavailableError, 503, "service_unavailable_error"),
    (DeadlineExceededError, 504, "timeout_error"),
    (RequestCancelledError, 499, "cancelled_error"),
    (UnsupportedError, 501, "not_implemented_error"),
    (UnauthenticatedError, 401, "authentication_error"),
    (PermissionDeniedError, 403, "permission_error"),
)
"""Status and type by class; the first that fits counts."""

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
}


class OpenAiError(Exception):
    """A refusal by the server itself. `param` is the field at fault, `code` names the reason."""

    def __init__(
        self, message: str, status: int = 400, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    def reply(self) -> Reply:
        """The reply with this error."""
        kind = _TYPES.get(self.status, "server_error")
        return reply(_body(str(self), kind, self.param, self.code), self.status)


def error_reply(error: InferenceError) -> Reply:
    """The reply for an error of the core."""
    status, kind = status_of(error)
    refusal = reply(_body(error.message, kind, *_fault(error)), status)
    if status in (429, 503):
        refusal.add_header(RETRY_AFTER, str(getattr(error, "retry_after", 1)))
    elif status == 401:
        refusal.add_header(AUTHENTICATE, BEARER)
    return refusal


def error_event(error: InferenceError) -> bytes:
    """The server-sent event for an error after the first event."""
    return b"data: %b\n\n" % _body(error.message, status_of(error)[1], *_fault(error))


def status_of(error: InferenceError) -> tuple[int, str]:
    """Status and OpenAI's type of an error of the core."""
    found = ((status, kind) for cls, status, kind in _KINDS if isinstance(error, cls))
    server = error.code in ("INTERNAL", "UNKNOWN")
    other = (500, "server_error") if server else (400, "invalid_request_error")
    return next(found, other)


def _fault(error: InferenceError) -> tuple[str | None, str | None]:
    """The field at fault and the reason: models are all that the core can fail to find."""
    return ("model", "model_not_found") if isinstance(error, NotFoundError) else (None, None)


def _body(message: str, kind: str, param: str | None, code: str | None) -> bytes:
    error = {"message": message, "type": kind, "param": param, "code": code}
    return dump({"error": error})
