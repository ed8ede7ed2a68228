"""`DeviceRows`: rows of an `OrtValue`, which speak DLPack and are not copied."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

from penstock.backend import DataType

NAMES = {1: "cpu", 2: "cuda"}
"""ONNX Runtime's names of devices, by DLPack's numbers."""


class _Memory(ctypes.Structure):
    """The beginning of DLPack's `DLTensor`, up to its strides, of which there are none."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("dimensions", ctypes.c_int32),
        ("datatype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    )


_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class DeviceRows:
    """Elements of an `OrtValue` from a place on, in a shape; the value lives as long as this.

    ONNX Runtime has no views of its own. Who takes the capsule copies its shape, as ONNX Runtime,
    PyTorch and numpy do.
    """

    def __init__(
        self, value: Any, datatype: DataType, shape: Sequence[int], begin: int = 0
    ) -> None:
        self._value = value
        self._begin = begin
        self.datatype = datatype
        self.shape = tuple(shape)
        self._dims = (ctypes.c_int64 * len(self.shape))(*self.shape)

    @property
    def pointer(self) -> int:
        """The address of the first element."""
        address: int = self._value.data_ptr()
        return address + self._begin

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.datatype.itemsize

    @property
    def whole(self) -> Any:
        """The `OrtValue`, where this is all of it in its own shape; else `None`."""
        return self._value if tuple(self._value.shape()) == self.shape else None

    def rows(self, begin: int, end: int) -> DeviceRows:
        """Some of the rows."""
        size = prod(self.shape[1:]) * self.datatype.itemsize
        shape = (end - begin, *self.shape[1:])
        return DeviceRows(self._value, self.datatype, shape, self._begin + begin * size)

    def reshaped(self, shape: Sequence[int]) -> DeviceRows:
        """The same elements in another shape."""
        return DeviceRows(self._value, self.datatype, shape, self._begin)

    def with_next(self, other: DeviceRows) -> DeviceRows | None:
        """These rows and those of `other`, where they lie side by side; else `None`."""
        if other._value is not self._value or other._begin != self._begin + self.nbytes:
            return None
        shape = (self.shape[0] + other.shape[0], *self.shape[1:])
        return DeviceRows(self._value, self.datatype, shape, self._begin)

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self._value.__dlpack__()
        memory = _Memory.from_address(_pointer_of(capsule, b"dltensor"))
        memory.data += self._begin
        memory.dimensions = len(self.shape)
        memory.shape = ctypes.cast(self._dims, ctypes.POINTER(ctypes.c_int64))
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self._value.__dlpack_device__()
        return kind, number
