"""Error classes and gRPC status codes."""

from __future__ import annotations

import grpc
import pytest

from penstock.core import errors
from penstock.core.errors import InferenceError
from penstock.rpc.status import StatusCode, replace_surrogates, status_code


@pytest.mark.contract("G-31")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InferenceError, StatusCode.UNKNOWN),
        (errors.InternalError, StatusCode.INTERNAL),
        (errors.NotFoundError, StatusCode.NOT_FOUND),
        (errors.InvalidRequestError, StatusCode.INVALID_ARGUMENT),
        (errors.ConfigError, StatusCode.INVALID_ARGUMENT),
        (errors.UnavailableError, StatusCode.UNAVAILABLE),
        (errors.RejectedError, StatusCode.UNAVAILABLE),
        (errors.ExhaustedError, StatusCode.RESOURCE_EXHAUSTED),
        (errors.UnsupportedError, StatusCode.UNIMPLEMENTED),
        (errors.AlreadyExistsError, StatusCode.ALREADY_EXISTS),
        (errors.RequestCancelledError, StatusCode.CANCELLED),
    ],
)
def test_code_is_that_of_the_nearest_known_class(
    error: type[InferenceError], code: StatusCode
) -> None:
    assert status_code(error("text")) is code


def test_class_of_a_backends_own_counts_as_its_base() -> None:
    class MyError(errors.NotFoundError):
        pass

    assert status_code(MyError("text")) is StatusCode.NOT_FOUND


def test_codes_are_those_of_grpc() -> None:
    assert {code.name: code.value for code in StatusCode} == {
        code.name: code.value[0] for code in grpc.StatusCode
    }


@pytest.mark.parametrize(("text", "cleaned"), [("plain", "plain"), ("ü \ud800", "ü ?")])
def test_half_a_surrogate_pair_becomes_a_question_mark(text: str, cleaned: str) -> None:
    assert replace_surrogates(text) == cleaned
