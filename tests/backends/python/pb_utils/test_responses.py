"""Errors and responses of a model."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from penstock.core.errors import NotFoundError
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.responses import InferenceResponse, TritonError
from penstock_backends.python.pb_utils.tensor import Tensor

X = Tensor("X", np.zeros(1, np.float32))


@pytest.mark.contract("PY-19")
def test_error_is_internal_by_default() -> None:
    error = TritonError("boom")
    assert (error.message(), error.code(), str(error)) == ("boom", TritonError.INTERNAL, "boom")


@pytest.mark.contract("PY-19")
def test_codes_are_those_of_triton() -> None:
    names = (
        "UNKNOWN INTERNAL NOT_FOUND INVALID_ARG UNAVAILABLE UNSUPPORTED ALREADY_EXISTS CANCELLED"
    )
    codes = [getattr(TritonError, name) for name in names.split()]
    assert codes == list(range(8))
    assert [TritonError("", code).code_name for code in codes] == names.split()


def test_error_has_the_servers_form() -> None:
    core = TritonError(message="no", code=TritonError.NOT_FOUND).core
    assert isinstance(core, NotFoundError)
    assert core.message == "no"


def test_name_of_a_code_makes_an_error() -> None:
    assert TritonError.from_name("CANCELLED", "m").code() == TritonError.CANCELLED
    assert TritonError.from_name("no such", "m").code() == TritonError.UNKNOWN


@pytest.mark.contract("PY-18")
def test_response_holds_tensors_or_an_error() -> None:
    fine, failed = InferenceResponse([X]), InferenceResponse(error=TritonError("boom"))
    assert fine.output_tensors() == [X]
    assert (fine.has_error(), fine.error()) == (False, None)
    error = failed.error()
    assert error is not None
    assert (failed.has_error(), error.message()) == (True, "boom")


@pytest.mark.contract("PY-18")
def test_parameters_are_read_as_json() -> None:
    given: dict[str, Any] = {"a": 1, "b": True, "c": 1.5, "d": "x"}
    assert json.loads(InferenceResponse([], parameters=given).parameters()) == given
    assert InferenceResponse([], parameters=given).core_parameters == given


def test_numbers_of_numpy_travel_as_those_of_python() -> None:
    given = {"a": np.float64(1.5), "b": True, "c": 2, "d": "x", "e": 2.0}
    told = InferenceResponse([], parameters=given).core_parameters
    assert told == {"a": 1.5, "b": True, "c": 2, "d": "x", "e": 2.0}
    assert [type(each) for each in told.values()] == [float, bool, int, str, float]


@pytest.mark.parametrize("parameters", ["text", {"a": [1]}, {1: 1}, {"a": None}])
def test_parameters_that_cannot_travel_are_refused(parameters: Any) -> None:
    with pytest.raises((TypeError, TritonModelException), match="parameter"):
        InferenceResponse([], parameters=parameters)


def test_an_output_is_not_none() -> None:
    with pytest.raises(TritonModelException, match=r"Output tensor .* should not be empty"):
        InferenceResponse([None])  # type: ignore[list-item]


def test_only_tensors_are_outputs() -> None:
    with pytest.raises(TypeError, match="expected a Tensor in output_tensors, got <class 'str'>"):
        InferenceResponse(["x"])  # type: ignore[list-item]
