"""`Tensor`: a named tensor in numpy and DLPack form (contract PY-21)."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core import device_tensor
from penstock.core.tensor import Array, DataType
from penstock.core.tensor import Tensor as CoreTensor
from penstock_backends.python.pb_utils.arguments import Text, text
from penstock_backends.python.pb_utils.exception import TritonModelException


class Tensor:
    """A named tensor over a numpy array, or over any object with DLPack support.

    `Tensor(name, array)` keeps the array, without a copy where it is contiguous.
    """

    __slots__ = ("_core", "_name")

    def __init__(self, name: Text, numpy_array: Array) -> None:
        self._name = _checked_name(name)
        if not isinstance(numpy_array, np.ndarray):
            raise TypeError(f"Tensor '{self._name}' needs a numpy array, got {type(numpy_array)}")
        if not numpy_array.flags.c_contiguous:
            numpy_array = np.ascontiguousarray(numpy_array)
        try:
            self._core = CoreTensor.from_numpy(numpy_array)
        except ValueError as error:
            raise TritonModelException("NumPy dtype is not supported.") from error

    @classmethod
    def over(cls, name: str, core: CoreTensor) -> Tensor:
        """A tensor over one in the server's form, without a copy."""
        tensor = cls.__new__(cls)
        tensor._name = name
        tensor._core = core
        return tensor

    @property
    def core(self) -> CoreTensor:
        """The tensor in the server's form."""
        return self._core

    def name(self) -> str:
        return self._name

    def shape(self) -> list[int]:
        return list(self._core.shape)

    def triton_dtype(self) -> int:
        """The datatype's number, as `triton_to_numpy_type` takes it."""
        return NUMBERS[self._core.datatype]

    def as_numpy(self) -> Array:
        """The elements; BYTES as `bytes` objects. The memory is the request's, without a copy."""
        if self._core.datatype is DataType.BF16:
            raise TypeError("a BF16 tensor has no numpy form; use DLPack")
        return self._core.numpy()

    def is_cpu(self) -> bool:
        return True

    def to_dlpack(self) -> Any:
        """A DLPack capsule over the same memory."""
        return self.__dlpack__()

    def __dlpack__(self, **options: Any) -> Any:
        if self._core.datatype is DataType.BYTES:
            raise TritonModelException("DLPack does not have support for string tensors.")
        return device_tensor.exported(self._core, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return device_tensor.CPU

    @classmethod
    def from_dlpack(cls, name: Text, tensor: Any) -> Tensor:
        """A tensor over an object with DLPack support, or a capsule; on the CPU without a copy."""
        if type(tensor).__name__ != "PyCapsule" and not _supports_dlpack(tensor):
            raise TritonModelException(
                "Provided tensor is not supported. Tensor must be a DLPack capsule or have"
                " `__dlpack__` and `__dlpack_device__` attributes"
            )
        return cls.over(_checked_name(name), device_tensor.imported(tensor))


def _checked_name(name: Text) -> str:
    checked = text(name, "name")
    if not checked:
        raise TritonModelException("Tensor name cannot be an empty string.")
    return checked


def _supports_dlpack(tensor: object) -> bool:
    return hasattr(tensor, "__dlpack__") and hasattr(tensor, "__dlpack_device__")


NUMBERS = {
    DataType.BOOL: 1,
    DataType.UINT8: 2,
    DataType.UINT16: 3,
    DataType.UINT32: 4,
    DataType.UINT64: 5,
    DataType.INT8: 6,
    DataType.INT16: 7,
    DataType.INT32: 8,
    DataType.INT64: 9,
    DataType.FP16: 10,
    DataType.FP32: 11,
    DataType.FP64: 12,
    DataType.BYTES: 13,
    DataType.BF16: 14,
}
"""Numbers of datatypes in the protocol's `inference.DataType`."""
