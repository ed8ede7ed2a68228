"""What models and clients give as values of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.core.conversion import as_tensor
from penstock.core.errors import InternalError
from penstock.core.tensor import DataType, Tensor


@pytest.mark.parametrize(
    ("value", "datatype", "shape", "elements"),
    [
        (7, DataType.INT64, (1,), [7]),
        (1.5, DataType.FP64, (1,), [1.5]),
        (True, DataType.BOOL, (1,), [True]),
        ([[1, 2], [3, 4]], DataType.INT64, (2, 2), [[1, 2], [3, 4]]),
        ("é", DataType.BYTES, (1,), ["é".encode()]),
        (b"a\0", DataType.BYTES, (1,), [b"a\0"]),
        ([b"a\0", "b"], DataType.BYTES, (2,), [b"a\0", b"b"]),
        (np.float32(2.0), DataType.FP32, (1,), [2.0]),
        (np.array(3, np.int8), DataType.INT8, (1,), [3]),
        (np.array([1, 2], np.uint16), DataType.UINT16, (2,), [1, 2]),
    ],
)
def test_a_value_has_the_datatype_and_shape_of_its_elements(
    value: Any, datatype: DataType, shape: tuple[int, ...], elements: list[Any]
) -> None:
    tensor = as_tensor(value)
    assert (tensor.datatype, tensor.shape, tensor.numpy().tolist()) == (datatype, shape, elements)


@pytest.mark.parametrize("value", [7, "text", b"bytes", np.float32(1)])
def test_one_element_gets_the_rank_that_is_asked_for(value: Any) -> None:
    assert as_tensor(value, rank=3).shape == (1, 1, 1)


def test_numbers_become_the_datatype_of_an_output() -> None:
    tensor = as_tensor([1, 2], DataType.FP16)
    assert (tensor.datatype, tensor.numpy().tolist()) == (DataType.FP16, [1.0, 2.0])
    kept = as_tensor(np.array([1, 2], np.int8), DataType.FP16)
    assert kept.datatype is DataType.INT8


def test_a_tensor_stays_itself() -> None:
    tensor = Tensor.from_strings(["a"])
    assert as_tensor(tensor, DataType.FP32, 3) is tensor


def test_bits_of_bfloat16_come_as_an_array_of_16_bits() -> None:
    bits = np.array([0x3F80], np.uint16)
    assert as_tensor(bits, DataType.BF16).datatype is DataType.BF16
    assert as_tensor(bits).datatype is DataType.UINT16
    assert as_tensor(np.array([1.0], np.float32), DataType.BF16).datatype is DataType.FP32
    with pytest.raises(InternalError) as refused:
        as_tensor([1.0], DataType.BF16)
    expected = "BF16 numbers must come as a tensor, or as an array of their bits"
    assert refused.value.message == expected


def test_what_no_tensor_holds_is_an_error() -> None:
    with pytest.raises(ValueError, match="numpy dtype complex128 has no tensor datatype"):
        as_tensor(np.array([1j]))
