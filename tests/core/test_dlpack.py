"""Tensors from and to other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.core import device_tensor
from penstock.core.tensor import DataType, Tensor

NUMBERS = [t for t in DataType if t not in (DataType.BYTES, DataType.BF16, DataType.INVALID)]


class Foreign:
    """A tensor of another library, on a device of its choice."""

    def __init__(self, tensor: Tensor, device: tuple[int, int] = device_tensor.CPU) -> None:
        self.device = device
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return device_tensor.exported(self.tensor, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class OnGpu(Foreign):
    """As a library that can copy to the CPU by a method."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor, (2, 0))

    def cpu(self) -> Foreign:
        return Foreign(self.tensor)


@pytest.mark.parametrize("datatype", NUMBERS)
def test_numbers_go_there_and_back(datatype: DataType) -> None:
    array = np.array([[0, 1], [1, 0]], datatype.numpy)
    back = device_tensor.imported(Foreign(Tensor.from_numpy(array)))
    assert back.datatype is datatype
    np.testing.assert_array_equal(back.numpy(), array)


def test_memory_is_shared_both_ways() -> None:
    array = np.zeros(3, np.float32)
    tensor = device_tensor.imported(array)
    seen = np.from_dlpack(Foreign(tensor))
    array[0] = 5
    assert tensor.numpy()[0] == seen[0] == 5


def test_bare_capsule_will_do() -> None:
    capsule = device_tensor.exported(Tensor.from_numpy(np.arange(3)))
    assert device_tensor.imported(capsule).numpy().tolist() == [0, 1, 2]


def test_bf16_keeps_its_bits() -> None:
    bits = Tensor.from_numpy(np.array([[0x3F80], [0x4000]], np.uint16), DataType.BF16)
    back = device_tensor.imported(Foreign(bits))
    assert (back.datatype, back.shape, back.buffer) == (DataType.BF16, (2, 1), bits.buffer)


def test_bf16_comes_in_a_bare_capsule_as_well() -> None:
    bits = Tensor.from_numpy(np.array([0x3F80], np.uint16), DataType.BF16)
    assert device_tensor.imported(device_tensor.exported(bits)).datatype is DataType.BF16


def test_numpy_does_not_take_bf16_for_numbers() -> None:
    bits = Tensor.from_numpy(np.array([1], np.uint16), DataType.BF16)
    with pytest.raises((RuntimeError, BufferError), match="Unsupported dtype"):
        np.from_dlpack(Foreign(bits))


def test_read_only_memory_is_copied() -> None:
    tensor = Tensor(DataType.INT32, (1,), b"\1\0\0\0")
    seen = np.from_dlpack(Foreign(tensor))
    assert seen.tolist() == [1]


def test_rows_that_are_not_beside_each_other_are_put_so() -> None:
    tensor = device_tensor.imported(np.arange(6).reshape(2, 3).T)
    assert np.frombuffer(tensor.buffer, np.int64).tolist() == [0, 3, 1, 4, 2, 5]


def test_memory_of_a_device_is_copied_to_the_cpu() -> None:
    assert device_tensor.imported(OnGpu(Tensor.from_numpy(np.arange(2)))).numpy().tolist() == [0, 1]


def test_strings_are_refused() -> None:
    with pytest.raises(TypeError, match="DLPack does not have support for string tensors"):
        device_tensor.exported(Tensor.from_strings(["a"]))


def test_unknown_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="complex64 has no tensor datatype"):
        device_tensor.imported(np.zeros(1, np.complex64))
