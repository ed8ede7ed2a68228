"""HTTP replies, and the table from error classes to status codes."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from penstock.core.buffer import Buffer
from penstock.core.errors import (
    DeadlineExceededError,
    ExhaustedError,
    InferenceError,
    InternalError,
    NoRoomError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedError,
)
from penstock.gateway.json.text import dump
from penstock.http1.requests import Field

JSON = "application/json"
PLAIN = "text/plain"

AUTHENTICATE = "www-authenticate"
BEARER = "Bearer"
"""What a caller that is not known is asked for (RFC 6750)."""


class Reply:
    """A whole reply: its status, header fields, and body in parts."""

    __slots__ = ("fields", "parts", "status")

    def __init__(self, status: int, fields: list[Field], parts: Sequence[Buffer]) -> None:
        self.status = status
        self.fields = fields
        self.parts = parts

    def add_header(self, name: str, value: str) -> None:
        """Add a header field."""
        self.fields.append((name.encode("ascii"), value.encode("latin-1")))


class Refusal(Reply):
    """The reply for an error of the core."""

    __slots__ = ("error",)

    def __init__(self, error: InferenceError, content_type: str = JSON) -> None:
        fields = [(b"content-type", content_type.encode())]
        super().__init__(http_status(error), fields, [dump({"error": error.message})])
        if isinstance(error, ExhaustedError):
            self.add_header("retry-after", str(error.retry_after))
        elif isinstance(error, UnauthenticatedError):
            self.add_header(AUTHENTICATE, BEARER)
        self.error = error


def reply(body: bytes = b"", status: int = 200, content_type: str = JSON) -> Reply:
    """A reply with exactly this content type."""
    return Reply(status, [(b"content-type", content_type.encode())], [body])


def json_reply(value: Any) -> Reply:
    """A reply that is `value` as JSON."""
    return reply(dump(value))


def error_reply(text: str, status: int, content_type: str = JSON) -> Reply:
    """A reply with an error text (contract H-27)."""
    return reply(dump({"error": text}), status, content_type)


def method_not_allowed(allowed: Sequence[str], content_type: str = JSON) -> Reply:
    """The reply to a method that a path does not take (H-26), which names those that it takes."""
    refusal = error_reply("Method Not Allowed", HTTPStatus.METHOD_NOT_ALLOWED, content_type)
    refusal.add_header("allow", ", ".join(allowed))
    return refusal


_STATUS: dict[type[InferenceError], HTTPStatus] = {
    InternalError: HTTPStatus.INTERNAL_SERVER_ERROR,
    NotFoundError: HTTPStatus.NOT_FOUND,
    UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    ExhaustedError: HTTPStatus.TOO_MANY_REQUESTS,
    NoRoomError: HTTPStatus.SERVICE_UNAVAILABLE,
    UnsupportedError: HTTPStatus.NOT_IMPLEMENTED,
    UnauthenticatedError: HTTPStatus.UNAUTHORIZED,
    PermissionDeniedError: HTTPStatus.FORBIDDEN,
    DeadlineExceededError: HTTPStatus.GATEWAY_TIMEOUT,
}


def http_status(error: InferenceError) -> int:
    """The HTTP status of the nearest mapped class of `error` (contract H-28)."""
    known = (_STATUS[cls] for cls in type(error).__mro__ if cls in _STATUS)
    return next(known, HTTPStatus.BAD_REQUEST)
