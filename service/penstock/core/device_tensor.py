"""Tensors in device memory, for models of one process that share the device, and DLPack.

numpy imports and exports tensors of the CPU, without a copy. It has no BF16, so such tensors pass
through it as uint16.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from penstock.core.buffer import Buffer
from penstock.core.tensor import Array, DataType, Tensor


class DeviceTensor(Tensor):
    """A tensor in device memory, copied to the host on the first use of its bytes or array.

    `device` supports DLPack, and may have another shape with as many elements. `to_host` copies it
    and blocks: so such tensors go only to models that use them on the device, or copy them on a
    thread of their own.
    """

    __slots__ = ("_device", "_to_host")

    def __init__(
        self,
        datatype: DataType,
        shape: Sequence[int],
        device: Any,
        to_host: Callable[[], Array],
    ) -> None:
        self.datatype = datatype
        self.shape = tuple(shape)
        self.shared = None
        self._buffer = self._array = None
        self._device = device
        self._to_host = to_host

    @property
    def device(self) -> Any:
        return self._device

    @property
    def buffer(self) -> Buffer:
        self.numpy()
        return super().buffer

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.datatype.itemsize

    def numpy(self) -> Array:
        if self._array is None:
            self._array = self._to_host().reshape(self.shape)
        return self._array

    def reshaped(self, shape: Sequence[int]) -> Tensor:
        # Both share one copy, made by the first that needs it.
        return DeviceTensor(self.datatype, shape, self._device, self.numpy)


CPU = (1, 0)
"""The device, as `__dlpack_device__` names it."""

_ON_THE_HOST = (1, 3)  # kDLCPU, kDLCUDAHost (pinned memory)
_UINT, _BFLOAT = 1, 4
_TYPE_CODE = 20
"""Offset of the type code in `DLTensor`: after a pointer, a device and the number of dimensions."""

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


def exported(tensor: Tensor, **options: Any) -> Any:
    """A capsule over the tensor's memory; a copy where that is read-only."""
    if tensor.datatype is DataType.BYTES:
        raise TypeError("DLPack does not have support for string tensors.")
    array = tensor.numpy()
    if not array.flags.writeable:  # old consumers ignore the read-only flag
        array = array.copy()
    if tensor.datatype is not DataType.BF16:
        return array.__dlpack__(**options)
    capsule: Any = array.__dlpack__()
    _type_code(capsule).value = _BFLOAT
    return capsule


def imported(source: Any) -> Tensor:
    """A tensor over the memory of a DLPack object or bare capsule; copied if on a device."""
    if not hasattr(source, "__dlpack__"):
        source = _Capsule(source)
    if source.__dlpack_device__()[0] not in _ON_THE_HOST:
        source = _on_host(source)
    try:
        return Tensor.from_numpy(np.ascontiguousarray(np.from_dlpack(source)))
    except (BufferError, RuntimeError):
        return _imported_bf16(source)


def _imported_bf16(source: Any) -> Tensor:
    capsule = source.__dlpack__()
    code = _type_code(capsule)
    if code.value != _BFLOAT:
        raise TypeError("DLPack offers a datatype that tensors do not have")
    code.value = _UINT
    bits = np.ascontiguousarray(np.from_dlpack(_Capsule(capsule)))
    return Tensor.from_numpy(bits, DataType.BF16)


def _on_host(source: Any) -> Any:
    """A copy in host memory."""
    if hasattr(source, "cpu"):  # torch; old versions lack the `device` argument
        return source.cpu()
    return np.from_dlpack(source, device="cpu", copy=True)


def _type_code(capsule: Any) -> ctypes.c_uint8:
    return ctypes.c_uint8.from_address(_pointer_of(capsule, b"dltensor") + _TYPE_CODE)


class _Capsule:
    """Adapts a bare capsule to the interface that `numpy.from_dlpack` expects."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU
