"""Tensors that are computed for a batch: their values and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from penstock.core.config import BatchInput, BatchInputKind
from penstock.core.errors import InternalError
from penstock.core.tensor import DataType
from penstock_backends.tensor_models.assembly import computed

pytestmark = pytest.mark.contract("C-18", "C-19")


def _computed(
    kind: BatchInputKind, *shapes: tuple[int, ...], datatype: Any = DataType.INT32
) -> Any:
    tensor = BatchInput(kind, ("info",), datatype, ("x",))
    return computed([tensor], [{"x": np.zeros(shape)} for shape in shapes])["info"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("BATCH_ELEMENT_COUNT", [3, 8, 2]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT", [3, 11, 13]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", [0, 3, 11, 13]),
        ("BATCH_ITEM_SHAPE", [[3, 1], [2, 2], [2, 2], [1, 2]]),
        ("BATCH_ITEM_SHAPE_FLATTEN", [3, 1, 2, 2, 2, 2, 1, 2]),
    ],
)
def test_the_values_of_each_kind(kind: str, expected: list[Any]) -> None:
    """Three requests; the second has two rows, and its shape counts for each of them."""
    array = _computed(BatchInputKind(kind), (1, 3, 1), (2, 2, 2), (1, 1, 2))
    assert_array_equal(array, np.array(expected, np.int32), strict=True)


def test_of_one_kind_only_the_shape_counts() -> None:
    array = _computed(BatchInputKind.BATCH_MAX_ELEMENT_COUNT_AS_SHAPE, (1, 3), (2, 4), (1, 5))
    assert array.shape == (8,)


@pytest.mark.parametrize("datatype", [DataType.INT32, DataType.FP32])
def test_values_have_the_type_that_is_declared(datatype: DataType) -> None:
    array = _computed(BatchInputKind.BATCH_ELEMENT_COUNT, (1, 3), datatype=datatype)
    assert array.dtype == datatype.numpy


def test_all_targets_get_the_same() -> None:
    tensor = BatchInput(target_name=("a", "b"), data_type=DataType.INT32, source_input=("x",))
    arrays = computed([tensor], [{"x": np.zeros((1, 4))}])
    assert {name: array.tolist() for name, array in arrays.items()} == {"a": [4], "b": [4]}


def test_a_source_that_is_missing_is_named() -> None:
    tensor = BatchInput(target_name=("info",), data_type=DataType.INT32, source_input=("x",))
    with pytest.raises(InternalError, match="input 'x' is missing, from which 'info' is computed"):
        computed([tensor], [{"y": np.zeros((1, 4))}])


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4), st.integers(0, 4)), min_size=1))
def test_counts_add_up(shapes: list[tuple[int, int, int]]) -> None:
    counts = _computed(BatchInputKind.BATCH_ELEMENT_COUNT, *shapes)
    ends = _computed(BatchInputKind.BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO, *shapes)
    items = _computed(BatchInputKind.BATCH_ITEM_SHAPE, *shapes)
    assert_array_equal(np.diff(ends), counts)
    assert ends[-1] == counts.sum() == items.prod(axis=1).sum()
    assert len(items) == sum(shape[0] for shape in shapes)
