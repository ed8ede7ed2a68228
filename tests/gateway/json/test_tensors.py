"""Encoding and decoding of tensor data in JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InternalError, InvalidRequestError
from penstock.core.tensor import DataType, Tensor
from penstock.gateway.json.tensors import tensor_from_json, tensor_to_json, tensor_to_text


def _tensor(datatype: DataType, data: list[Any], count: int | None = None) -> Tensor:
    size = len(data) if count is None else count
    return tensor_from_json("IN", datatype, [size], data, size)


@pytest.mark.parametrize(
    ("datatype", "data", "expected"),
    [
        (DataType.BOOL, [True, False], [True, False]),
        (DataType.UINT8, [256, 255], [0, 255]),
        (DataType.INT8, [-129, 127], [127, 127]),
        (DataType.UINT64, [2**64 - 1], [2**64 - 1]),
        (DataType.INT64, [-(2**63)], [-(2**63)]),
        (DataType.INT64, [2**63 - 1], [2**63 - 1]),
        (DataType.FP32, [1, 2.5], [1.0, 2.5]),
        (DataType.FP32, [1e300, float("nan")], [np.inf, np.nan]),
        (DataType.FP64, [1e300], [1e300]),
        (DataType.BYTES, ["a\0b", ""], [b"a\0b", b""]),
    ],
)
def test_values_become_elements(datatype: DataType, data: list[Any], expected: list[Any]) -> None:
    """What does not fit is cut as a C cast does."""
    tensor = _tensor(datatype, data)
    np.testing.assert_array_equal(tensor.numpy(), np.array(expected, datatype.numpy))


@pytest.mark.contract("HI-03")
@pytest.mark.parametrize(
    "data", [[[1, 2], [3, 4]], [1, 2, 3, 4], [[1], [2, 3, 4]], [1, [2, [3], 4]]]
)
def test_data_may_be_nested_in_any_way(data: list[Any]) -> None:
    tensor = tensor_from_json("IN", DataType.INT32, [2, 2], data, 4)
    assert tensor.numpy().tolist() == [[1, 2], [3, 4]]


def test_depth_of_nesting_multiplies_no_work() -> None:
    """Each level once looked at all elements, of bodies on the event loop too."""
    data: list[Any] = [2]
    for _ in range(50_000):
        data = [data]
    tensor = tensor_from_json("IN", DataType.INT32, [50_001], [*[1] * 50_000, data], 50_001)
    assert tensor.numpy().sum() == 50_002


@pytest.mark.parametrize(
    ("datatype", "data", "text"),
    [
        (DataType.BOOL, [1], "non-boolean as boolean"),
        (DataType.INT32, [1.0], "non-signed-integer as signed-integer"),
        (DataType.INT32, [True], "non-signed-integer as signed-integer"),
        (DataType.INT64, [2**63], "non-signed-integer as signed-integer"),
        (DataType.INT64, [-(2**63) - 1], "non-signed-integer as signed-integer"),
        (DataType.UINT64, [2**64], "non-unsigned-integer as unsigned-integer"),
        (DataType.INT64, [{}], "non-signed-integer as signed-integer"),
        (DataType.UINT8, [-1], "non-unsigned-integer as unsigned-integer"),
        (DataType.FP32, ["1"], "non-number as double"),
        (DataType.FP32, [None], "non-number as double"),
        (DataType.FP64, [True], "non-number as double"),
    ],
)
def test_values_of_another_type_are_refused(datatype: DataType, data: list[Any], text: str) -> None:
    with pytest.raises(InternalError) as refused:
        _tensor(datatype, data)
    assert str(refused.value) == f"Unable to parse 'data': attempt to access JSON {text}"


@pytest.mark.contract("HI-03")
@pytest.mark.parametrize("data", [[1, 2], [1, 2, 3, "x"], []])
def test_wrong_number_of_elements_is_refused(data: list[Any]) -> None:
    with pytest.raises(InternalError, match="Shape does not match true shape of 'data' field"):
        _tensor(DataType.INT32, data, count=3)


def test_wrong_type_among_the_wanted_elements_comes_first() -> None:
    with pytest.raises(InternalError, match="non-signed-integer"):
        _tensor(DataType.INT32, [1, "x", 3], count=2)


def test_integer_beyond_any_double_is_refused() -> None:
    with pytest.raises(InternalError, match="Number too big"):
        _tensor(DataType.FP64, [10**400])


@pytest.mark.contract("HI-06")
def test_strings_must_be_strings() -> None:
    with pytest.raises(InternalError) as refused:
        _tensor(DataType.BYTES, ["a", 1])
    text = "Unable to parse JSON bytes array: attempt to access JSON non-string as string"
    assert str(refused.value) == text


@pytest.mark.contract("HI-05")
@pytest.mark.parametrize("datatype", [DataType.FP16, DataType.BF16])
def test_half_precision_is_binary_only(datatype: DataType) -> None:
    with pytest.raises(InvalidRequestError, match=f"receiving {datatype} data via JSON"):
        _tensor(datatype, [1.0])
    tensor = Tensor(datatype, [1], b"\0\0")
    with pytest.raises(InvalidRequestError, match=f"sending {datatype} data via JSON"):
        tensor_to_json("OUT", tensor)


@pytest.mark.parametrize("datatype", [DataType.FP32, DataType.BYTES])
def test_shape_of_more_dimensions_than_numpy_has_is_the_models_to_refuse(
    datatype: DataType,
) -> None:
    data: list[Any] = ["a"] if datatype is DataType.BYTES else [2.0]
    tensor = tensor_from_json("IN", datatype, [1] * 200, data, 1)
    assert tensor.shape == (1,) * 200
    assert tensor.nbytes in (4, 5)


def test_unknown_datatype_is_refused_by_the_name_of_the_input() -> None:
    with pytest.raises(InvalidRequestError, match="invalid datatype for input IN"):
        _tensor(DataType.INVALID, [1])


@given(st.lists(st.floats(width=32)))
def test_floats_come_back_as_they_were(values: list[float]) -> None:
    tensor = _tensor(DataType.FP32, values)
    np.testing.assert_array_equal(tensor_to_json("OUT", tensor), values)


@given(st.lists(st.floats(width=32), max_size=3), st.sampled_from([1, 1000]))
async def test_floats_are_written_with_the_digits_of_64_bits(values: list[float], n: int) -> None:
    parts = await tensor_to_text("OUT", _tensor(DataType.FP32, values * n))
    assert repr(json.loads(b"".join(parts))) == repr(values * n)


@pytest.mark.parametrize("count", [2048, 2049, 100_000])
async def test_large_tensors_are_written_in_steps(count: int) -> None:
    values = np.random.default_rng(1).random(count)
    tensor = Tensor.from_numpy(values)
    parts = await tensor_to_text("OUT", tensor)
    assert json.loads(b"".join(parts)) == values.tolist()


async def test_many_strings_are_written_in_steps() -> None:
    values = [b"%d" % number for number in range(5000)]
    parts = await tensor_to_text("OUT", Tensor.from_strings(values))
    assert json.loads(b"".join(parts)) == [value.decode() for value in values]


@pytest.mark.parametrize("text", ["a", "\u00e9\u4e2d\U0001f600", "\x00", '"\\'])
async def test_long_string_is_written_in_steps(text: str) -> None:
    """Of which each is short, and none cuts a character."""
    value = (text * 100_001).encode()
    tensor = Tensor.from_strings([b"x", value, b"\xff" * 100_000, b""])
    parts = await tensor_to_text("OUT", tensor)
    read = json.loads(b"".join(parts).decode("utf-8", "surrogateescape"))
    assert read == ["x", text * 100_001, "\udcff" * 100_000, ""]


async def test_others_have_a_turn_while_a_long_string_is_written() -> None:
    tensor = Tensor.from_strings([bytes(1 << 20)])
    writing, turns = asyncio.create_task(tensor_to_text("OUT", tensor)), 0
    while not writing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= (1 << 20) >> 15


async def test_others_have_a_turn_after_every_few_elements() -> None:
    tensor = Tensor.from_numpy(np.zeros(1 << 20))
    writing, turns = asyncio.create_task(tensor_to_text("OUT", tensor)), 0
    while not writing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= (1 << 20) >> 15


async def test_encoding_stops_when_cancelled() -> None:
    tensor = Tensor.from_numpy(np.zeros(1 << 20))
    writing = asyncio.create_task(tensor_to_text("OUT", tensor))
    await asyncio.sleep(0)
    assert not writing.done()
    writing.cancel()
    await asyncio.sleep(0)
    assert writing.cancelled()


@given(st.lists(st.binary()))
def test_bytes_come_back_as_they_were(values: list[bytes]) -> None:
    texts = tensor_to_json("OUT", Tensor.from_strings(values))
    again = _tensor(DataType.BYTES, texts)
    assert again.elements() == values


def test_output_whose_data_does_not_fit_its_shape_is_an_error() -> None:
    with pytest.raises(InternalError, match="output tensor shape does not match size of output"):
        tensor_to_json("OUT", Tensor(DataType.FP32, [3], b"\0" * 8))


@pytest.mark.parametrize("value", [b"", b"token", "\u00e9\u4e2d".encode(), b"\xff\x00"])
@pytest.mark.parametrize("shape", [[1], [1, 1]])
def test_one_string_is_read_without_an_array(value: bytes, shape: list[int]) -> None:
    tensor = Tensor.from_strings([value], shape)
    assert tensor_to_json("OUT", tensor) == [value.decode("utf-8", "surrogateescape")]


@pytest.mark.parametrize("data", [b"", b"\1\0\0", b"\2\0\0\0a", b"\1\0\0\0ab"])
def test_one_string_of_a_wrong_length_is_refused(data: bytes) -> None:
    with pytest.raises(InternalError, match="shape does not match size of output for 'OUT'"):
        tensor_to_json("OUT", Tensor(DataType.BYTES, [1], data))
