"""vLLM's errors as `InferenceError`s."""

from __future__ import annotations

from typing import Final

from penstock.backend import (
    ExhaustedError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    UnavailableError,
)
from penstock_backends.language_model import ENGINE_REQUESTS, ENGINE_TOKENS

UNHEALTHY: Final = "Model is unavailable due to unhealthy vLLM engine"

ENDED: Final = (
    "Error generating stream: vLLM has ended the request with an error, which its log tells; a "
    "constraint in 'structured_outputs' that it could not compile, or not keep to, ends so"
)
"""Of a request with the finish reason `error`; vLLM says no more, and its own routes answer 500."""


def translated(error: Exception) -> InferenceError:
    """The error of a request; its text begins as Triton's (VL-15)."""
    if isinstance(error, InferenceError):  # ours, such as that of an adapter
        return error
    from vllm import exceptions

    if (dead := death(error)) is not None:
        return dead
    text = f"Error generating stream: {reason(error)}"
    if isinstance(error, exceptions.VLLMClientError | ValueError):
        return InvalidRequestError(text)
    if rejection_reason(error):
        return ExhaustedError(text)
    return InternalError(text)


def rejection_reason(error: Exception) -> str:
    """The reason, for metrics, why vLLM's queue refused a request; empty for other errors."""
    if isinstance(error, InferenceError):
        return ""
    from vllm import exceptions

    if isinstance(error, exceptions.QueueOverflowError):
        return ENGINE_REQUESTS
    return ENGINE_TOKENS if isinstance(error, exceptions.MaxQueuedTokensError) else ""


def death(error: BaseException) -> UnavailableError | None:
    """The error of anything that is asked of an engine that has died; `None` for others."""
    from vllm.v1.engine.exceptions import EngineDeadError

    if isinstance(error, EngineDeadError):
        return UnavailableError(f"{UNHEALTHY}: {error}")
    return None


def reason(error: BaseException) -> str:
    """The error's message; if empty, its cause's message or the name of its class."""
    return str(error) or (reason(error.__cause__) if error.__cause__ else type(error).__name__)
