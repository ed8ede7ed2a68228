"""HTTP replies as ASGI applications, and the table from error classes to status codes."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.core.buffer import Buffer
from penstock.core.errors import (
    DeadlineExceededError,
    ExhaustedError,
    InferenceError,
    InternalError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from penstock.gateway.json.text import dump

JSON = "application/json"
PLAIN = "text/plain"

_SMALL = 1 << 16
"""Bodies of up to so many bytes are joined: one write is cheaper than two."""


def reply(body: bytes = b"", status: int = 200, content_type: str = JSON) -> Response:
    """A reply with exactly this content type."""
    return Response(body, status, {"content-type": content_type})


def json_reply(value: Any) -> Response:
    """A reply that is `value` as JSON."""
    return reply(dump(value))


def error_reply(text: str, status: int, content_type: str = JSON) -> Response:
    """A reply with an error text (contract H-27)."""
    return reply(dump({"error": text}), status, content_type)


class Refusal(Response):
    """The reply for an error of the core."""

    def __init__(self, error: InferenceError, content_type: str) -> None:
        headers = {"content-type": content_type}
        if isinstance(error, ExhaustedError):
            headers["retry-after"] = str(error.retry_after)
        super().__init__(dump({"error": error.message}), http_status(error), headers)
        self.error = error


def refusal(error: InferenceError, content_type: str = JSON) -> Response:
    """The reply for an error of the core."""
    return Refusal(error, content_type)


class PartsReply:
    """A reply whose body is sent in parts; large ones are not copied together."""

    def __init__(self, parts: Sequence[Buffer], headers: Sequence[tuple[str, str]]) -> None:
        views = [memoryview(part).cast("B") for part in parts]
        size = sum(map(len, views))
        self._parts = [b"".join(views)] if size <= _SMALL else views
        self._headers = [(name.encode(), value.encode()) for name, value in headers]
        self._headers.append((b"content-length", str(size).encode()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        *former, last = self._parts
        for part in former:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": last})


_STATUS: dict[type[InferenceError], HTTPStatus] = {
    InternalError: HTTPStatus.INTERNAL_SERVER_ERROR,
    NotFoundError: HTTPStatus.NOT_FOUND,
    UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    ExhaustedError: HTTPStatus.TOO_MANY_REQUESTS,
    UnsupportedError: HTTPStatus.NOT_IMPLEMENTED,
    DeadlineExceededError: HTTPStatus.GATEWAY_TIMEOUT,
}


def http_status(error: InferenceError) -> int:
    """The HTTP status of the nearest mapped class of `error` (contract H-28)."""
    known = (_STATUS[cls] for cls in type(error).__mro__ if cls in _STATUS)
    return next(known, HTTPStatus.BAD_REQUEST)
