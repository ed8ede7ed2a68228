"""Decoding of a generate request into tensors and parameters."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.errors import InferenceError, InternalError, InvalidRequestError
from penstock.core.request import InferenceRequest
from penstock.gateway.inference.generate_codec import decode_generate
from penstock.gateway.json.text import LARGE, parse
from penstock.models.serving.answers import ModelMetadata, TensorMetadata

_INPUTS = (
    TensorMetadata("text", "BYTES", (1,)),
    TensorMetadata("numbers", "FP32", (-1,)),
    TensorMetadata("rows", "INT32", (-1, 2)),
    TensorMetadata("two", "INT32", (-1, -1)),
)


def _decode(body: Any, *inputs: TensorMetadata, request_id: str = "") -> InferenceRequest:
    metadata = ModelMetadata("m", ("1",), "", inputs or _INPUTS, ())
    return decode_generate(metadata, "1", request_id, body)


@pytest.mark.contract("HG-01")
def test_members_named_like_inputs_are_tensors_and_others_parameters() -> None:
    request = _decode({"text": "hi", "stream": True, "temperature": 0.5, "parameters": {"n": 3}})
    assert request.inputs["text"].elements() == [b"hi"]
    assert request.parameters == {"stream": True, "temperature": 0.5, "n": 3}


@pytest.mark.contract("HG-02")
def test_nested_members_may_be_inputs_too() -> None:
    request = _decode({"parameters": {"text": "hi", "parameters": "again"}})
    assert request.inputs["text"].elements() == [b"hi"]
    assert request.parameters == {"parameters": "again"}


@pytest.mark.parametrize("more", ["", " " * 2000, " " * LARGE], ids=["short", "longer", "large"])
@pytest.mark.parametrize(
    ("members", "again"),
    [
        ('"text": "a", "numbers": 1, "text": "b"', "text"),
        ('"text": "a", "numbers": 1, "numbers": 1, "text": 5', "numbers"),
        ('"numbers": [1], "parameters": {"text": "a", "text": 5}', "text"),
        ('"text": "a", "parameters": {"text": "b"}', "text"),
        ('"parameters": {"text": "a"}, "parameters": {}', "text"),
    ],
)
def test_an_input_that_comes_again_is_refused(members: str, again: str, more: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"input '{again}' already exists in request"):
        _decode(parse(f"{{{members}{more}}}".encode()))


def test_a_parameter_that_comes_again_counts_once() -> None:
    request = _decode(parse(b'{"text": "a", "n": 1, "n": 2}'))
    assert request.parameters == {"n": 1}


def test_nested_parameters_that_come_again_take_no_longer() -> None:
    """A body of 500 KB, which is decoded on the event loop; it took minutes."""
    nested = ",".join(f'"n{number}":1' for number in range(4000))
    again = '"parameters":1,' * 28_000
    request = _decode(parse(f'{{"parameters":{{{nested}}},{again}"text":"a"}}'.encode()))
    assert len(request.parameters) == 4000


@pytest.mark.contract("HG-03")
@pytest.mark.parametrize(
    ("member", "value", "shape"),
    [
        ("numbers", 1.5, (1,)),
        ("numbers", [1, 2.5, 3], (3,)),
        ("numbers", [], (0,)),
        ("numbers", [[1], [2]], (2,)),
        ("rows", [1, 2, 3, 4], (2, 2)),
        ("two", [1, 2, 3], (1, 3)),
    ],
)
def test_shape_is_fitted_to_the_number_of_elements(
    member: str, value: Any, shape: tuple[int, ...]
) -> None:
    assert _decode({member: value}).inputs[member].shape == shape


@pytest.mark.parametrize(("member", "value"), [("text", ["a", "b"]), ("text", []), ("rows", [1])])
def test_elements_that_fit_no_shape_are_refused(member: str, value: Any) -> None:
    text = f"The schema can not convert input '{member}' to tensor with proper shape"
    with pytest.raises(InvalidRequestError, match=text):
        _decode({member: value})


@pytest.mark.contract("HG-01")
@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        ([], InternalError, "^attempt to get members for non-object"),
        ({"id": 5}, InternalError, "Unable to parse 'id': attempt to access JSON non-string"),
        ({"x": {}}, InvalidRequestError, "^parameter 'x' has invalid type"),
        ({"parameters": []}, InternalError, "^Expected JSON object for keyword: 'parameters': "),
        ({"parameters": {"x": None}}, InvalidRequestError, "^Converting keyword: 'parameters': "),
        ({"text": "a", "parameters": {"text": "b"}}, InvalidRequestError, "already exists"),
        ({"text": 5}, InternalError, "Unable to parse JSON bytes array"),
        ({"numbers": [[1, 2]]}, InternalError, "Shape does not match"),
    ],
)
def test_invalid_bodies_are_refused(body: Any, error: type[InferenceError], text: str) -> None:
    with pytest.raises(error, match=text):
        _decode(body)


@pytest.mark.contract("HG-02")
def test_input_called_parameters_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="also given as input tensor name"):
        _decode({"parameters": {}}, TensorMetadata("parameters", "BYTES", (1,)))


def test_id_of_the_body_goes_before_that_of_the_header() -> None:
    assert _decode({"id": "body"}, request_id="header").id == "body"
    assert _decode({}, request_id="header").id == "header"


@pytest.mark.contract("HG-05")
def test_id_is_no_parameter() -> None:
    """Language models refuse parameters that they do not know."""
    request = _decode({"text": "hi", "id": "7", "n": 3, "parameters": {"id": "nested"}})
    assert (request.id, request.parameters) == ("7", {"n": 3, "id": "nested"})
    assert "id" not in _decode({"text": "hi", "id": "7"}).parameters


@pytest.mark.contract("HG-05")
def test_input_called_id_is_a_tensor_too() -> None:
    request = _decode({"id": "7"}, TensorMetadata("id", "BYTES", (1,)))
    assert (request.id, request.inputs["id"].elements()) == ("7", [b"7"])


@pytest.mark.contract("HG-04")
@pytest.mark.parametrize(
    ("datatype", "value", "elements"),
    [
        ("BYTES", "caf\u00e9", ["caf\u00e9".encode()]),
        ("BOOL", True, [True]),
        ("UINT8", 255, [255]),
        ("INT64", -(1 << 63), [-(1 << 63)]),
        ("UINT64", (1 << 64) - 1, [(1 << 64) - 1]),
        ("FP32", 1, [1.0]),
        ("FP64", 0.1, [0.1]),
    ],
)
def test_values_are_converted_to_the_datatype_of_the_input(
    datatype: str, value: Any, elements: list[Any]
) -> None:
    request = _decode({"x": value}, TensorMetadata("x", datatype, (-1,)))
    found = request.inputs["x"]
    assert list(found.elements() if datatype == "BYTES" else found.numpy()) == elements


@pytest.mark.contract("HG-04")
@pytest.mark.parametrize(
    ("datatype", "value"),
    [("BYTES", 1), ("BOOL", 1), ("INT32", "1"), ("INT32", 0.5), ("FP32", True), ("FP16", 0.5)],
)
def test_values_of_another_kind_are_refused(datatype: str, value: Any) -> None:
    """FP16 and BF16 have no form in JSON."""
    with pytest.raises(InferenceError):
        _decode({"x": value}, TensorMetadata("x", datatype, (-1,)))
