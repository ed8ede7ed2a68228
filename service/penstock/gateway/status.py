"""From error classes to HTTP status codes: the only place where the two vocabularies meet."""

from __future__ import annotations

from http import HTTPStatus

from penstock.core.errors import (
    DeadlineExceededError,
    InferenceError,
    InternalError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)

_STATUS: dict[type[InferenceError], HTTPStatus] = {
    InternalError: HTTPStatus.INTERNAL_SERVER_ERROR,
    NotFoundError: HTTPStatus.NOT_FOUND,
    UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    UnsupportedError: HTTPStatus.NOT_IMPLEMENTED,
    DeadlineExceededError: HTTPStatus.GATEWAY_TIMEOUT,
}


def http_status(error: InferenceError) -> int:
    """The status of the nearest known class of `error` (contract H-28)."""
    known = (_STATUS[cls] for cls in type(error).__mro__ if cls in _STATUS)
    return next(known, HTTPStatus.BAD_REQUEST)
