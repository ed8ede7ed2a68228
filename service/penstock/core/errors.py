"""Exceptions of the core, which each frontend maps to its status codes in one table.

One class per decision that a client can make. `code` names the class where an error has to
travel as data (between processes), and equals the name of Triton's error code (contract G-31).
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import ClassVar

_LONGEST_REPEATED = 1 << 10
"""Characters of a client's text that an error text repeats."""


class InferenceError(Exception):
    """Base of every error that a client may see."""

    code: ClassVar[str] = "UNKNOWN"

    @property
    def message(self) -> str:
        """The text for the client."""
        return str(self)


class InternalError(InferenceError):
    """Something that should not happen did; the client can do nothing about it."""

    code = "INTERNAL"


class NotFoundError(InferenceError):
    """The named model, version or object does not exist."""

    code = "NOT_FOUND"


class InvalidRequestError(InferenceError):
    """The request is wrong and will stay wrong."""

    code = "INVALID_ARG"


class UnavailableError(InferenceError):
    """It exists but cannot serve now; trying again may succeed."""

    code = "UNAVAILABLE"


class RejectedError(UnavailableError):
    """A queue policy rejected the request: the queue is full, or its timeout has expired."""


class ExhaustedError(RejectedError):
    """A limit on what may wait is reached; trying again in `retry_after` seconds may succeed."""

    code = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NoRoomError(ExhaustedError):
    """The memory for a model is held by others; in `retry_after` seconds it may be free."""


def shortened(text: str) -> str:
    """A client's text, as error texts repeat it: of a long one the beginning and the length."""
    if len(text) <= _LONGEST_REPEATED:
        return text
    return f"{text[:_LONGEST_REPEATED]}... ({len(text)} characters)"


def request_prefix(request_id: str) -> str:
    """The prefix of error texts, with the request's id if it has one (contract V-01)."""
    return f"[request id: {shortened(request_id) or '<id_unknown>'}] "


def queue_full(request_id: str) -> str:
    """Error text for a request to a full queue (contract D-11)."""
    return f"{request_prefix(request_id)}Exceeds maximum queue size"


def call_refused(model: str, problem: str) -> str:
    """Error text for a model whose call of another was refused, in Triton's words."""
    return f"Model {model} - Error when running inference: {problem}"


class UnsupportedError(InferenceError):
    """Understood, but this server or model does not do it."""

    code = "UNSUPPORTED"


def no_commands(action: str) -> UnsupportedError:
    """The error of a backend that takes no commands of operators."""
    return UnsupportedError(f"the backend of this model does not know the action '{action}'")


class UnauthenticatedError(InferenceError):
    """Who asks is not known; with other credentials it may be."""

    code = "UNAUTHENTICATED"


class PermissionDeniedError(InferenceError):
    """Who asks is known, and may not do this."""

    code = "PERMISSION_DENIED"


class AlreadyExistsError(InferenceError):
    """The name is taken."""

    code = "ALREADY_EXISTS"


class RequestCancelledError(InferenceError):
    """The client no longer wants the answer."""

    code = "CANCELLED"

    def __init__(self, message: str = "request was cancelled") -> None:
        super().__init__(message)


class DeadlineExceededError(RequestCancelledError):
    """The client's deadline has passed; models and processes see a cancellation."""


class OutOfRangeError(InvalidRequestError):
    """Past that is asked for, and of which nothing is left."""


class DataLossError(UnavailableError):
    """Something in between is lost for good: who follows begins anew."""


class ModelLoadError(InvalidRequestError):
    """A model cannot be loaded; the text says why, naming file and field where it can."""


class ConfigError(ModelLoadError):
    """A model configuration is wrong; the text names the field."""


class BackendNotInstalledError(ModelLoadError):
    """A package that the backend needs is missing; the text holds the line that installs it.

    In an image, where nobody installs anything, it says how to build one that has it.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text + _image_with(text))


def _image_with(text: str) -> str:
    """How the image comes to an engine that it was built without; nothing elsewhere."""
    built = os.environ.get("PENSTOCK_IMAGE_ENGINE", "")
    missing = re.search(r"penstock\[([\w,-]+)\]", text)
    if not built or missing is None:
        return ""
    extra = missing[1]
    if extra == "trtllm":
        how = "--target trtllm"
    elif built == "none" or extra == "vllm":  # vLLM brings versions of its own
        how = f"--build-arg ENGINE={extra}"
    else:
        how = f"--build-arg ENGINE={built},{extra}"
    return f"; this image was built with ENGINE={built}: build one with {how}"


_BY_CODE: dict[str, type[InferenceError]] = {
    cls.code: cls
    for cls in (
        InferenceError,
        InternalError,
        NotFoundError,
        InvalidRequestError,
        UnavailableError,
        ExhaustedError,
        UnsupportedError,
        AlreadyExistsError,
        RequestCancelledError,
    )
}


def error_from_code(code: str, message: str) -> InferenceError:
    """The error that `code` names, or one of the base class for an unknown code."""
    return _BY_CODE.get(code, InferenceError)(message)


def as_inference_error(error: BaseException) -> InferenceError:
    """`error` as a client may see it: exceptions of foreign code become INTERNAL."""
    if isinstance(error, InferenceError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return RequestCancelledError()
    text = str(error)
    return InternalError(f"{type(error).__name__}: {text}" if text else type(error).__name__)
