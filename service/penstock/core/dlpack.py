"""DLPack import and export of tensors, without a copy on the CPU.

numpy does the work. It has no BF16, so such tensors pass through it as uint16.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from penstock.core.tensor import DataType, Tensor

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
