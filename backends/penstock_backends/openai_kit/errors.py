"""Errors in OpenAI's form, and the place where errors of models are translated to it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import NoReturn

from penstock.backend import (
    DeadlineExceededError,
    ExhaustedError,
    InferenceError,
    InvalidRequestError,
    NotFoundError,
    RequestCancelledError,
    UnavailableError,
    UnsupportedError,
)
from penstock_backends.language_model import RUNNING_ERROR

_SAMPLING = re.compile(r"sampling parameter '(\w+)' ")

_STATUS: tuple[tuple[type[InferenceError], int, str], ...] = (
    (InvalidRequestError, 400, "invalid_request_error"),
    (UnsupportedError, 400, "invalid_request_error"),
    (NotFoundError, 404, "not_found_error"),
    (ExhaustedError, 429, "rate_limit_error"),
    (UnavailableError, 503, "service_unavailable_error"),
    (DeadlineExceededError, 504, "timeout_error"),
    (RequestCancelledError, 499, "cancelled_error"),
)
"""Status and type by class; the first that fits counts."""


class ApiError(Exception):
    """An answer in OpenAI's error form. `param` is the field at fault, `code` names the reason."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int = 400,
        kind: str = "invalid_request_error",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status
        self.kind = kind
        self.headers = headers or {}

    def renamed(self, names: Mapping[str, str], places: Callable[[str], str] = str) -> ApiError:
        """The same error for a client whose fields have other names: theirs by those here.

        `places` turns the places that its message names into the client's.
        """
        param = names.get(self.param or "")
        if param is None:
            return self
        return ApiError(
            places(str(self).replace(f"'{self.param}'", f"'{param}'")),
            param=param,
            code=self.code,
            status=self.status,
            kind=self.kind,
            headers=self.headers,
        )

    def body(self) -> bytes:
        """The JSON object."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return json.dumps({"error": error}).encode()


def refuse_field(param: str, message: str, code: str | None = None) -> NoReturn:
    """Raise the error of a field that is wrong; `message` names it itself."""
    raise ApiError(message, param=param, code=code)


def api_error(error: InferenceError, renamed: Mapping[str, str] | None = None) -> ApiError:
    """An error of the model in OpenAI's form.

    `renamed` holds the client's field by the sampling parameter that it became.
    """
    message = str(error).removeprefix(RUNNING_ERROR)
    status, kind = next(
        ((status, kind) for cls, status, kind in _STATUS if isinstance(error, cls)),
        (500, "server_error"),
    )
    param = None
    if found := _SAMPLING.match(message):
        param = (renamed or {}).get(found[1], found[1])
        message = f"'{param}' {message[found.end() :]}"
    headers = {"retry-after": str(getattr(error, "retry_after", 1))} if status in (429, 503) else {}
    return ApiError(message, param=param, status=status, kind=kind, headers=headers)
