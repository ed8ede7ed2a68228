"""Conversion to `Tensor` of arrays, strings, numbers, and tensors of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from penstock.core import device_tensor
from penstock.core.errors import InternalError
from penstock.core.tensor import Array, DataType, Tensor


class SupportsDLPack(Protocol):
    """A tensor of another library, such as torch."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


Value = Tensor | Array | SupportsDLPack | str | bytes | bool | int | float | Sequence[Any]
"""A value convertible to a tensor: a string or number is one element, a sequence an array of them.

Sequences may be nested; their strings and bytes are the elements of a BYTES tensor. Python numbers
become INT64, FP64 or BOOL unless a datatype is given, as it is for the outputs of a model.
"""


def as_tensor(value: Value, datatype: DataType | None = None, rank: int = 1) -> Tensor:
    """Convert `value` to a tensor; a single element gets `rank` dimensions of length 1.

    `datatype` is that of Python numbers; a value with a datatype of its own (a tensor, an array,
    strings) keeps it. Raises `ValueError` for a value that no tensor can hold, and `InternalError`
    for numbers that should become BF16.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray) and value.ndim:
        return Tensor.from_numpy(value, _bits(value, datatype))
    if isinstance(value, str | bytes):
        return Tensor.from_strings([value], (1,) * rank)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
        return device_tensor.imported(value)
    if datatype is DataType.BF16:
        raise InternalError("BF16 numbers must come as a tensor, or as an array of their bits")
    array = np.asarray(value, dtype=datatype and datatype.numpy)
    if array.dtype.kind in "SU":  # numpy would drop trailing zero bytes of such strings
        array = np.asarray(value, dtype=np.object_)
    return Tensor.from_numpy(array if array.ndim else array.reshape((1,) * rank))


def _bits(array: Array, datatype: DataType | None) -> DataType | None:
    """BF16 if the caller says that the uint16 elements are the bits of such numbers."""
    return datatype if datatype is DataType.BF16 and array.dtype == np.uint16 else None
