"""Errors, and the codes that they travel by."""

from __future__ import annotations

import pytest

from penstock.core.errors import (
    AlreadyExistsError,
    BackendNotInstalledError,
    ConfigError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    ModelLoadError,
    NotFoundError,
    RejectedError,
    RequestCancelledError,
    UnavailableError,
    UnsupportedError,
    error_from_code,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InferenceError, "UNKNOWN"),
        (InternalError, "INTERNAL"),
        (NotFoundError, "NOT_FOUND"),
        (InvalidRequestError, "INVALID_ARG"),
        (UnavailableError, "UNAVAILABLE"),
        (UnsupportedError, "UNSUPPORTED"),
        (AlreadyExistsError, "ALREADY_EXISTS"),
        (RequestCancelledError, "CANCELLED"),
    ],
)
def test_an_error_survives_the_way_as_code_and_text(error: type[InferenceError], code: str) -> None:
    arrived = error_from_code(error.code, error("why").message)
    assert (error.code, type(arrived), arrived.message) == (code, error, "why")


@pytest.mark.parametrize("error", [ModelLoadError, ConfigError, BackendNotInstalledError])
def test_an_error_of_loading_is_an_invalid_argument(error: type[InferenceError]) -> None:
    assert type(error_from_code(error.code, "")) is InvalidRequestError


def test_a_rejected_request_arrives_as_unavailable() -> None:
    assert type(error_from_code(RejectedError.code, "")) is UnavailableError


def test_a_code_that_nobody_knows_is_the_base_class() -> None:
    arrived = error_from_code("BROKEN", "odd")
    assert type(arrived) is InferenceError
    assert arrived.message == "odd"
