"""Outputs returned as classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InternalError, InvalidRequestError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock.models.serving.admission import Classifier, top_classes

pytestmark = pytest.mark.contract("X-01", "X-02", "X-04")

LABELS = (b"zero", b"one", b"", b" three\r", b"four")


def classified(values: Any, dtype: Any, count: int, labels: Any = (), batched: bool = False) -> Any:
    return top_classes(Tensor.from_numpy(np.array(values, dtype)), count, labels, batched)


def test_best_come_first_with_value_index_and_label() -> None:
    """As the real server answered; an empty label and one that is not there are left out."""
    tensor = classified([1.5, 0.1, 1e10, -2, np.inf, -np.inf], np.float32, 10, LABELS)
    assert tensor.datatype is DataType.BYTES
    assert tensor.shape == (6,)
    assert tensor.elements() == [
        b"inf:4:four",
        b"10000000000.000000:2",
        b"1.500000:0:zero",
        b"0.100000:1:one",
        b"-2.000000:3: three\r",
        b"-inf:5",
    ]


def test_integers_have_no_decimals() -> None:
    assert classified([2**64 - 1, 5], np.uint64, 2).elements() == [
        b"18446744073709551615:0",
        b"5:1",
    ]


def test_not_a_number_comes_first() -> None:
    assert classified([1, np.nan, 2], np.float32, 2).elements() == [b"nan:1", b"2.000000:2"]


def test_each_row_of_a_batch_has_its_own_classes() -> None:
    tensor = classified([[[1, 2], [3, 0]], [[7, 6], [5, 4]]], np.int32, 2, batched=True)
    assert tensor.shape == (2, 2)
    assert tensor.elements() == [b"3:2", b"2:1", b"7:0", b"6:1"]


def test_without_batching_all_dimensions_are_one_row() -> None:
    assert classified([[1, 2], [3, 0]], np.int32, 1).elements() == [b"3:2"]


@pytest.mark.parametrize(("shape", "batched"), [((0,), False), ((2, 0), True), ((0, 3), True)])
def test_nothing_has_no_classes(shape: tuple[int, ...], batched: bool) -> None:
    tensor = classified(np.empty(shape), np.float32, 3, batched=batched)
    assert tensor.elements() == []


@pytest.mark.parametrize("datatype", ["BOOL", "BYTES", "FP16", "BF16"])
def test_types_without_classes_are_refused(datatype: str) -> None:
    tensor = Tensor(DataType(datatype), (0,), b"")
    with pytest.raises(InvalidRequestError, match=f"due to unsupported type '{datatype}'$"):
        top_classes(tensor, 1, (), False)


def test_too_many_elements_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"^classification output tensor too large$"):
        classified(np.zeros(1_000_001), np.int8, 1)


@given(st.lists(st.integers(-3, 3), max_size=40), st.integers(1, 50))
def test_order_is_that_of_a_stable_sort(values: list[int], count: int) -> None:
    expected = sorted(range(len(values)), key=lambda i: -values[i])[:count]
    assert classified(values, np.int8, count).elements() == [
        b"%d:%d" % (values[i], i) for i in expected
    ]


def test_only_the_wanted_outputs_become_classes() -> None:
    plain = Tensor.from_numpy(np.ones(2, np.float32))
    transform = Classifier(False, {"A": [b"x"]}).transform({"A": 1}, None)
    response = transform(InferenceResponse({"A": plain, "B": plain}, {"p": 1}, final=True))
    assert response.outputs["A"].elements() == [b"1.000000:0:x"]
    assert response.outputs["B"] is plain
    assert (response.parameters, response.final) == ({"p": 1}, True)


def test_what_cannot_be_classified_is_the_response_s_error() -> None:
    transform = Classifier(False, {}).transform({"A": 1}, None)
    response = transform(InferenceResponse({"A": Tensor(DataType.BOOL, (1,), b"\1")}, final=True))
    assert isinstance(response.error, InvalidRequestError)
    assert response.final


def test_data_that_its_shape_denies_is_the_model_s_fault() -> None:
    with pytest.raises(InternalError, match="does not fit its shape"):
        top_classes(Tensor(DataType.INT8, (3,), b"\1"), 1, (), False)
