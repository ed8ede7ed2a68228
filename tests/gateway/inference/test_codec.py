"""Codec of the inference endpoint's bodies."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    UnsupportedError,
)
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.request_limits import MOST_DIMENSIONS, MOST_TENSORS
from penstock.core.tensor import DataType, Tensor
from penstock.gateway.inference.codec import OutputEncoding, decode_request, encode_response

_LIMIT = 1 << 20


def _input(**fields: Any) -> dict[str, Any]:
    return {"name": "IN", "datatype": "FP32", "shape": [2], "data": [1, 2]} | fields


def _binary(size: int, **fields: Any) -> dict[str, Any]:
    item = _input(parameters={"binary_data_size": size}, **fields)
    del item["data"]
    return item


def _decode(
    request: Any, rest: bytes = b"", limit: int = _LIMIT
) -> tuple[InferenceRequest, OutputEncoding]:
    return decode_request("m", "3", request, memoryview(rest), limit)


@pytest.mark.contract("HI-01")
def test_request_has_the_fields_of_the_body() -> None:
    request, _ = _decode({"id": "7", "inputs": [_input()], "outputs": [{"name": "OUT"}]})
    assert (request.model_name, request.model_version, request.id) == ("m", "3", "7")
    assert request.inputs["IN"].numpy().tolist() == [1.0, 2.0]
    assert request.requested_outputs == ("OUT",)


@pytest.mark.contract("HI-08")
def test_binary_inputs_follow_the_json_in_order() -> None:
    inputs = [_binary(8, name="A"), _input(name="B"), _binary(4, name="C", shape=[1])]
    request, _ = _decode({"inputs": inputs}, np.array([1, 2, 3], np.float32).tobytes())
    values = {name: tensor.numpy().tolist() for name, tensor in request.inputs.items()}
    assert values == {"A": [1.0, 2.0], "B": [1.0, 2.0], "C": [3.0]}


def test_binary_input_is_not_copied() -> None:
    request, _ = _decode({"inputs": [_binary(8)]}, bytes(8))
    assert isinstance(request.inputs["IN"].buffer, memoryview)


@pytest.mark.contract("HI-12")
@pytest.mark.parametrize(
    ("rest", "text"),
    [
        (bytes(9), "unexpected additional input data for model 'm'"),
        (bytes(5), "unexpected size for input 'IN', expecting 3 additional bytes for model 'm'"),
    ],
)
def test_binary_data_must_be_as_long_as_said(rest: bytes, text: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        _decode({"inputs": [_binary(8)]}, rest)
    assert str(refused.value) == text


@pytest.mark.contract("HI-04")
@pytest.mark.parametrize(
    ("item", "found"),
    [
        ({}, "no field is set"),
        (_input(parameters={"binary_data_size": 8}), "set 'data' 'binary_data_size'"),
        (
            {"parameters": {"binary_data_size": 1, "shared_memory_region": "r"}},
            "set 'binary_data_size' 'shared_memory_region'",
        ),
    ],
)
def test_input_has_one_source_of_data(item: Any, found: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"But {found}$"):
        _decode({"inputs": [item]})


def test_elements_of_an_empty_tensor_are_not_looked_at() -> None:
    request, _ = _decode({"inputs": [_input(shape=[0, 4], data="junk")]})
    assert request.inputs["IN"].shape == (0, 4)
    assert request.inputs["IN"].nbytes == 0


@pytest.mark.contract("H-36")
def test_tensors_of_json_count_against_the_limit() -> None:
    """Text can be shorter than what it stands for."""
    inputs = [_input(name="A"), _input(name="B", shape=[1 << 40])]
    with pytest.raises(InvalidRequestError) as refused:
        _decode({"inputs": inputs}, limit=100)
    size = 4 << 40
    assert str(refused.value) == (
        f"request size of {size + 8} bytes with input 'B' of size {size} bytes exceeds the maximum"
        " allowed input size of 100. Use --http-max-input-size to increase the limit."
    )


def test_a_shape_with_a_product_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="exceeds the maximum allowed input size"):
        _decode({"inputs": [_input(shape=[(1 << 63) - 1] * 1000)]}, limit=100)


@pytest.mark.contract("HI-15")
def test_parameters_become_fields_or_go_to_the_model() -> None:
    request, form = _decode(
        {
            "inputs": [],
            "parameters": {
                "sequence_id": "s",
                "sequence_start": True,
                "sequence_end": False,
                "priority": 2,
                "timeout": 5000,
                "binary_data_output": True,
                "text": "x",
                "number": 1.5,
                "flag": False,
                "huge": 1 << 63,
            },
        }
    )
    assert (request.correlation_id, request.sequence_start, request.sequence_end) == (
        "s",
        True,
        False,
    )
    assert (request.priority, request.timeout, form.binary) == (2, 5000, True)
    assert request.parameters == {"text": "x", "number": 1.5, "flag": False, "huge": 2.0**63}


@pytest.mark.contract("HI-15")
@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        ([], InternalError, "failed to get request params.: attempt to get members for non-object"),
        ({"triton_enable_empty_final_response": True}, InvalidRequestError, "are reserved"),
        ({"sequence_id": -1}, InternalError, "Unable to parse 'sequence_id': .* non-string"),
        ({"sequence_id": "x" * 129}, UnsupportedError, "longer than 128 characters"),
        ({"priority": -1}, InternalError, "Unable to parse 'priority': .* non-unsigned-integer"),
        ({"sequence_end": 1}, InternalError, "Unable to parse 'sequence_end': .* non-boolean"),
        ({"x": [1]}, InvalidRequestError, "parameter 'x' has invalid type"),
        ({"x": 10**400}, InternalError, "Number too big"),
    ],
)
def test_parameters_that_cannot_be_are_refused(
    parameters: Any, error: type[InferenceError], text: str
) -> None:
    with pytest.raises(error, match=text):
        _decode({"inputs": [], "parameters": parameters})


@pytest.mark.contract("GP-10", "HI-20")
@pytest.mark.parametrize(("given", "classes"), [(3, {"OUT": 3}), (0, {})])
def test_an_output_may_be_wanted_as_classes(given: int, classes: dict[str, int]) -> None:
    request, _ = _decode_output({"classification": given})
    assert request.classes == classes


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (
            {"classification": "2"},
            "^Unable to set 'classification': attempt to access JSON non-uns",
        ),
        (
            {"classification": 0, "shared_memory_region": "r"},
            "^Output can't set both 'shared_memory_region' and 'classification'$",
        ),
    ],
)
def test_classes_that_cannot_be_are_refused(parameters: dict[str, Any], text: str) -> None:
    with pytest.raises(InferenceError, match=text):
        _decode_output(parameters)


def _decode_output(parameters: dict[str, Any]) -> tuple[InferenceRequest, OutputEncoding]:
    return _decode({"inputs": [], "outputs": [{"name": "OUT", "parameters": parameters}]})


@pytest.mark.contract("HI-09", "HI-10")
def test_named_outputs_are_json_by_default() -> None:
    """The default for all outputs holds for a request that names none."""
    outputs = [{"name": "A", "parameters": {"binary_data": True}}, {"name": "B"}]
    request, form = _decode(
        {"inputs": [], "outputs": outputs, "parameters": {"binary_data_output": True}}
    )
    assert request.requested_outputs == ("A", "B")
    assert (form.is_binary("A"), form.is_binary("B"), form.is_binary("C")) == (True, False, True)


@pytest.mark.contract("HI-02", "HI-11")
@pytest.mark.contract("N-13")
def test_output_that_is_named_twice_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="output 'A' is requested more than once"):
        _decode({"inputs": [_input()], "outputs": [{"name": "A"}, {"name": "A"}]})


async def test_response_lists_outputs_and_appends_binary_ones() -> None:
    tensor = Tensor.from_numpy(np.array([[1.5, 2.0]], np.float32))
    response = InferenceResponse({"A": tensor, "B": tensor}, parameters={"p": 1})
    form = OutputEncoding(by_name={"A": True})
    encoded = encode_response(InferenceRequest("m", id="7"), "3", response, form)
    assert encoded is not None
    shared = {"datatype": "FP32", "shape": [1, 2]}
    assert json.loads(b"".join(encoded.header)) == {
        "id": "7",
        "model_name": "m",
        "model_version": "3",
        "parameters": {"p": 1},
        "outputs": [
            {"name": "A", **shared, "parameters": {"binary_data_size": 8}},
            {"name": "B", **shared, "data": [1.5, 2.0]},
        ],
    }
    assert b"".join(encoded.tensors) == tensor.buffer


async def test_outputs_not_requested_are_left_out() -> None:
    response = InferenceResponse({name: Tensor(DataType.INT8, [1], b"\1") for name in "AB"})
    request = InferenceRequest("m", requested_outputs=("B",))
    encoded = encode_response(request, "1", response, OutputEncoding())
    assert encoded is not None
    assert [output["name"] for output in json.loads(b"".join(encoded.header))["outputs"]] == ["B"]


@pytest.mark.parametrize("item", [_input, partial(_binary, 8)])
def test_dimensions_are_counted_before_they_are_converted(item: Callable[..., Any]) -> None:
    shape = ["not a size"] * (MOST_DIMENSIONS + 1)
    with pytest.raises(InvalidRequestError, match=r"^input 'IN' has 1025 dimensions, which"):
        _decode({"inputs": [item(shape=shape)]})


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_tensors_are_counted_before_they_are_read(kind: str) -> None:
    request = {"inputs": [_input()], kind: [None] * (MOST_TENSORS + 1)}
    with pytest.raises(InvalidRequestError, match=rf"^request has 4097 {kind}, which"):
        _decode(request)


@pytest.mark.parametrize(
    "request_json",
    [
        {"id": "i" * 9000, "inputs": [_input(), _input()]},
        {"inputs": [_input(name="n" * 9000)] * 2},
        {"inputs": [_binary(8, name="n" * 9000)]},
        {"inputs": [_input(name="n" * 9000, shape=[1] * 2000)]},
        {"inputs": [_input()], "parameters": {"k" * 9000: []}},
    ],
)
def test_errors_do_not_repeat_a_long_text(request_json: Any) -> None:
    with pytest.raises(InferenceError) as refused:
        _decode(request_json)
    assert len(refused.value.message) < 1300
