"""Tensors that stay on a device until the host needs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.core.device_tensor import DeviceTensor
from penstock.core.tensor import Array, DataType, Tensor


class Device:
    """Holds an array as a device would: it speaks DLPack, and numpy cannot look at it."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.copies = 0

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("this is on a device")

    def to_host(self) -> Array:
        self.copies += 1
        return self._array.copy()


ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


def on_device(array: Array = ARRAY) -> tuple[Device, DeviceTensor]:
    device = Device(array)
    return device, DeviceTensor(DataType.FP32, array.shape, device, device.to_host)


def test_nothing_is_copied_to_hand_it_on_and_to_check_it() -> None:
    device, tensor = on_device()
    turned = tensor.reshaped((3, 2))
    assert (tensor.device, turned.device) == (device, device)
    assert (tensor.shape, turned.shape) == ((2, 3), (3, 2))
    assert (tensor.nbytes, turned.nbytes, tensor.datatype) == (24, 24, DataType.FP32)
    assert device.copies == 0


def test_the_host_copy_is_shared() -> None:
    device, tensor = on_device()
    assert tensor.reshaped((6,)).numpy().tolist() == [0, 1, 2, 3, 4, 5]
    assert bytes(tensor.buffer) == ARRAY.tobytes()
    assert tensor.numpy().tolist() == ARRAY.tolist()
    assert device.copies == 1


def test_tensors_of_the_host_are_on_no_device() -> None:
    tensors = [Tensor.from_numpy(ARRAY), Tensor(DataType.FP32, (2, 3), ARRAY.tobytes())]
    assert [tensor.device for tensor in tensors] == [None, None]


def test_values_of_onnx_runtime_are_what_it_takes() -> None:
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    value = ort.OrtValue.ortvalue_from_numpy(ARRAY)
    tensor = DeviceTensor(DataType.FP32, value.shape(), value, value.numpy)
    assert tensor.device.__dlpack_device__() == (1, 0)
    assert np.from_dlpack(tensor.device).tolist() == ARRAY.tolist()
    assert bytes(tensor.buffer) == ARRAY.tobytes()
