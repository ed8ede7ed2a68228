"""Tensors: conversions, DLPack without copies, kinds of memory."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.in_process import (
    DataType,
    DLDeviceType,
    InvalidArgumentError,
    MemoryBuffer,
    MemoryType,
    Tensor,
    UnsupportedError,
)


class _BFloat16:
    """An array of BF16, as torch would offer it."""

    def __init__(self, bits: Any) -> None:
        self._tensor = Tensor.from_dlpack(bits)
        self._tensor.data_type = DataType.BF16

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.mark.contract("API-07")
@pytest.mark.parametrize(
    "kind", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64"]
)
def test_arrays_are_looked_at_and_not_copied(kind: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(kind)
    tensor = Tensor.from_dlpack(array)
    assert tensor.data_ptr == array.ctypes.data
    assert (tensor.size, list(tensor.shape)) == (array.nbytes, [2, 3])
    back = np.from_dlpack(tensor)
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)
    assert back.ctypes.data == array.ctypes.data


@pytest.mark.slow
@pytest.mark.contract("API-07")
def test_a_view_keeps_the_memory_alive() -> None:
    owner = np.ones(1000)
    gone = weakref.ref(owner)
    view = np.from_dlpack(Tensor.from_dlpack(owner))
    del owner
    gc.collect()
    assert gone() is not None
    assert view.sum() == 1000
    del view
    gc.collect()
    assert gone() is None


def test_the_shape_of_a_tensor_may_be_changed() -> None:
    tensor = Tensor.from_dlpack(np.arange(6))
    tensor.shape = [3, 2]
    assert np.from_dlpack(tensor).shape == (3, 2)


@pytest.mark.contract("API-07")
@given(st.lists(st.binary(max_size=9), max_size=5))
def test_bytes_come_back_as_they_were(values: list[bytes]) -> None:
    tensor = Tensor.from_bytes_array(np.array(values, dtype=object))
    assert tensor.data_type == DataType.BYTES
    assert tensor.to_bytes_array().tolist() == values


@pytest.mark.contract("API-07")
@pytest.mark.parametrize(
    "strings", [["a", "é"], [["a"], ["b"]], np.array(["a", "b"]), np.array([b"a"])]
)
def test_strings_come_back_as_they_were(strings: Any) -> None:
    plain = np.array(strings)
    texts = np.char.decode(plain) if plain.dtype.kind == "S" else plain
    assert np.array_equal(Tensor.from_string_array(strings).to_string_array(), texts)


@pytest.mark.contract("API-07")
@pytest.mark.parametrize(
    ("value", "datatype"),
    [
        ([1, 2], DataType.INT64),
        ([[1.5]], DataType.FP64),
        ([True], DataType.BOOL),
        ("text", DataType.BYTES),
        ([b"a\0"], DataType.BYTES),
        (np.float32(1), DataType.FP32),
        (np.array([1, 2])[::-1], DataType.INT64),
    ],
)
def test_objects_have_the_datatype_that_numpy_gives_them(value: Any, datatype: DataType) -> None:
    assert Tensor.from_object(value).data_type == datatype


@pytest.mark.contract("API-07")
def test_bfloat16_passes() -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    tensor = Tensor.from_dlpack(_BFloat16(bits))
    assert tensor.data_type == DataType.BF16
    assert tensor.size == 4


@pytest.mark.parametrize("value", [object(), [[1], [1, 2]], {}, None, np.array([1j])])
def test_what_is_no_tensor_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        Tensor.from_object(value)


def test_wrong_conversions_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="Unsupported conversion"):
        Tensor.from_string_array([1])
    with pytest.raises(InvalidArgumentError, match="has data type"):
        Tensor.from_object([1]).to_string_array()
    with pytest.raises(InvalidArgumentError, match="string tensors"):
        Tensor.from_object(["a"]).__dlpack__()
    with pytest.raises(UnsupportedError, match="stream"):
        Tensor.from_object([1]).__dlpack__(stream=7)
    with pytest.raises(InvalidArgumentError, match="DLPack"):
        MemoryBuffer.from_dlpack(3)
    with pytest.raises(InvalidArgumentError, match="DLPack"):
        Tensor.from_dlpack(np.array(["a"]))


@pytest.mark.contract("API-07")
@pytest.mark.parametrize(
    "device", ["cpu", "CPU:0", MemoryType.CPU, (MemoryType.CPU, 0), (DLDeviceType.kDLCPU, 0)]
)
def test_the_host_is_where_tensors_are(device: Any) -> None:
    tensor = Tensor.from_object([1])
    assert tensor.to_device(device) is tensor
    assert tensor.to_host() is tensor
    assert tensor.__dlpack_device__() == (1, 0)
    assert (tensor.memory_type, tensor.memory_type_id) == (MemoryType.CPU, 0)
    assert MemoryBuffer.from_dlpack(np.ones(2)).size == 16


@pytest.mark.contract("API-07")
@pytest.mark.parametrize("device", ["gpu", "gpu:1", MemoryType.GPU, (DLDeviceType.kDLCUDA, 0)])
def test_other_devices_are_not_supported(device: Any) -> None:
    with pytest.raises(UnsupportedError, match="Conversion from"):
        Tensor.from_object([1]).to_device(device)


@pytest.mark.parametrize("device", ["disk", "cpu:x", 5, ("a", "b", "c")])
def test_what_is_no_device_is_refused(device: Any) -> None:
    with pytest.raises((InvalidArgumentError, ValueError)):
        Tensor.from_object([1]).to_device(device)


def test_a_tensor_refers_to_its_owner_once() -> None:
    owner = np.ones(4)
    before = sys.getrefcount(owner)
    tensor = Tensor.from_dlpack(owner)
    assert sys.getrefcount(owner) == before + 1
    assert tensor.size == 32
