"""The tensor of `pb_utils`."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.core.tensor import DataType
from penstock.core.tensor import Tensor as CoreTensor
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.tensor import NUMBERS, Tensor


def test_tensor_is_over_the_array_it_was_given() -> None:
    array = np.arange(3, dtype=np.int32)
    tensor = Tensor("X", array)
    array[0] = 99
    assert tensor.as_numpy().tolist() == [99, 1, 2]


@pytest.mark.contract("PY-21")
def test_tensor_has_name_shape_and_datatype() -> None:
    tensor = Tensor("X", np.zeros((2, 3), np.float32))
    assert (tensor.name(), tensor.shape(), tensor.triton_dtype()) == ("X", [2, 3], 11)
    assert tensor.is_cpu()
    assert tensor.__dlpack_device__() == (1, 0)


def test_numbers_are_those_of_the_protocol() -> None:
    """`inference.DataType` without its first, INVALID."""
    assert sorted(NUMBERS.values()) == list(range(1, 15))


def test_scalar_keeps_its_shape() -> None:
    assert Tensor("X", np.array(1.0)).shape() == []


def test_transposed_array_travels_row_by_row() -> None:
    tensor = Tensor("X", np.arange(4, dtype=np.int8).reshape(2, 2).T)
    assert bytes(tensor.core.buffer) == b"\0\2\1\3"


@pytest.mark.parametrize(
    "array",
    [
        np.array([b"ab", b"c"], np.object_),
        np.array(["ab", "c"], np.object_),
        np.array([b"ab", b"c"]),
    ],
)
def test_strings_may_come_in_any_form(array: np.ndarray[tuple[int], np.dtype[np.object_]]) -> None:
    tensor = Tensor("X", array)
    assert tensor.core.datatype is DataType.BYTES
    assert tensor.core.elements() == [b"ab", b"c"]


@pytest.mark.contract("PY-21")
def test_strings_are_read_as_bytes() -> None:
    tensor = Tensor.over("X", CoreTensor.from_strings(["ab", "c"]))
    assert tensor.as_numpy().tolist() == [b"ab", b"c"]
    assert tensor.as_numpy().dtype == np.object_


def test_only_arrays_make_a_tensor() -> None:
    with pytest.raises(TypeError, match="Tensor 'X' needs a numpy array, got <class 'list'>"):
        Tensor("X", [1, 2])  # type: ignore[arg-type]


def test_name_of_a_tensor_is_a_text() -> None:
    with pytest.raises(TypeError, match="'name' is not text"):
        Tensor(5, np.zeros(1))  # type: ignore[arg-type]


def test_arrays_that_are_no_tensors_are_refused_as_triton_does() -> None:
    with pytest.raises(TritonModelException, match=r"^NumPy dtype is not supported\.$"):
        Tensor("X", np.array([1j]))


@pytest.mark.contract("PY-21")
def test_strings_are_refused_by_dlpack_as_in_triton() -> None:
    with pytest.raises(TritonModelException, match="DLPack does not have support for string"):
        Tensor("X", np.array([b"a"], np.object_)).to_dlpack()
    with pytest.raises(TritonModelException, match="Tensor must be a DLPack capsule or have"):
        Tensor.from_dlpack("X", 5)


@pytest.mark.contract("PY-21")
def test_bf16_has_no_numpy_form() -> None:
    core = CoreTensor.from_numpy(np.zeros(1, np.uint16), DataType.BF16)
    with pytest.raises(TypeError, match="use DLPack"):
        Tensor.over("X", core).as_numpy()
    assert Tensor.from_dlpack("Y", Tensor.over("X", core)).core.datatype is DataType.BF16


@pytest.mark.contract("PY-21")
def test_dlpack_shares_memory_both_ways() -> None:
    array = np.zeros(2, np.float32)
    tensor = Tensor.from_dlpack("X", array)
    seen = np.from_dlpack(tensor)
    array[0] = 5
    assert tensor.as_numpy()[0] == seen[0] == 5


def test_capsule_makes_a_tensor() -> None:
    capsule = Tensor("X", np.arange(3)).to_dlpack()
    tensor = Tensor.from_dlpack("Y", capsule)
    assert (tensor.name(), tensor.as_numpy().tolist()) == ("Y", [0, 1, 2])
