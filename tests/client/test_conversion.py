"""Values that callers pass, as tensors of the datatypes that a model has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.client import InvalidArgumentError
from penstock_client.client.conversion import as_input, converted, fitted, typed
from penstock_client.reading.views import ModelMetadata, TensorMetadata


def _input(datatype: str, *shape: int) -> TensorMetadata:
    return TensorMetadata("IN", datatype, shape or (-1,))


@pytest.mark.parametrize(
    ("value", "datatype", "expected"),
    [
        ([1, 2], "INT8", np.array([1, 2], np.int8)),
        (3, "UINT64", np.array([3], np.uint64)),
        ([1, 2.5], "FP32", np.array([1, 2.5], np.float32)),
        (True, "BOOL", np.array([True])),
        ([1.0, 2.0], "BF16", np.array([0x3F80, 0x4000], np.uint16)),
        ("a", "BYTES", np.array([b"a"], object)),
        ([b"a\0", "é"], "BYTES", np.array([b"a\0", "é".encode()], object)),
        ([], "INT32", np.empty(0, np.int32)),
    ],
)
def test_values_take_the_datatype_of_the_input(value: Any, datatype: str, expected: Any) -> None:
    made = as_input(value, _input(datatype))
    assert made.datatype == datatype
    assert np.array_equal(made.numpy(), expected)


@pytest.mark.parametrize(
    ("value", "datatype"),
    [
        ([300], "INT8"),
        ([-1], "UINT8"),
        ([1.5], "INT32"),
        (["1"], "INT32"),
        (["1"], "FP32"),
        ([1], "BOOL"),
        ([[1], [1, 2]], "FP32"),
        ("text", "BF16"),
        ({}, "FP32"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(value: Any, datatype: str) -> None:
    with pytest.raises(InvalidArgumentError, match="'IN' is not " + datatype):
        as_input(value, _input(datatype))


@pytest.mark.parametrize(
    ("shape", "wanted", "made"),
    [
        ((), (1,), (1,)),
        ((), (-1, -1), (1, 1)),
        ((16,), (-1, 16), (1, 16)),
        ((4,), (-1, 2, -1), (1, 2, 2)),
        ((3,), (-1, 2), (3,)),
        ((2, 2), (-1,), (2, 2)),
        ((5,), (1, 1), (5,)),
    ],
)
def test_missing_dimensions_are_filled_in(
    shape: tuple[int, ...], wanted: tuple[int, ...], made: tuple[int, ...]
) -> None:
    assert fitted(shape, wanted) == made


@given(st.lists(st.integers(0, 5), max_size=3), st.lists(st.integers(-1, 5), max_size=4))
def test_a_fitted_shape_has_as_many_elements(shape: list[int], wanted: list[int]) -> None:
    assert np.prod(fitted(shape, wanted), dtype=int) == np.prod(shape, dtype=int)


def test_an_unknown_input_names_the_nearest() -> None:
    metadata = ModelMetadata("m", ("1",), "", (TensorMetadata("INPUT0", "FP32", (-1,)),), ())
    with pytest.raises(InvalidArgumentError, match="did you mean 'INPUT0'"):
        converted({"INPUT": [1.0]}, metadata)


def test_an_array_without_a_datatype_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="complex"):
        typed(np.array([1j]))
