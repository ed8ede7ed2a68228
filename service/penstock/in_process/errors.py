"""Exceptions with the names of Triton's in-process API, made of the core's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core import errors as core


class TritonError(Exception):
    """Base of all errors of the server."""


class UnknownError(TritonError):
    """An error of a kind that is not known."""


class InternalError(TritonError):
    """The server or the model failed."""


class NotFoundError(TritonError):
    """There is no such model, version or object."""


class InvalidArgumentError(TritonError):
    """An argument is wrong."""


class UnavailableError(TritonError):
    """The server or the model cannot answer now."""


class UnsupportedError(TritonError):
    """The server or the model does not do this."""


class AlreadyExistsError(TritonError):
    """The name is taken."""


class CancelledError(TritonError):
    """The request was cancelled."""


_BY_CLASS: dict[type[core.InferenceError], type[TritonError]] = {
    core.InternalError: InternalError,
    core.NotFoundError: NotFoundError,
    core.InvalidRequestError: InvalidArgumentError,
    core.UnavailableError: UnavailableError,
    core.UnsupportedError: UnsupportedError,
    core.AlreadyExistsError: AlreadyExistsError,
    core.RequestCancelledError: CancelledError,
}


def error_from(error: core.InferenceError) -> TritonError:
    """The exception for an error of the core: that of its nearest known class."""
    known = (_BY_CLASS[each] for each in type(error).__mro__ if each in _BY_CLASS)
    return next(known, UnknownError)(error.message)


@contextmanager
def translated() -> Iterator[None]:
    """Errors of the core as those of this API."""
    try:
        yield
    except core.InferenceError as error:
        raise error_from(error) from error
