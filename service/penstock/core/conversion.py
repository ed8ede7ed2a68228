"""Conversion to `Tensor` of arrays, strings, numbers, and tensors of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from penstock.core import dlpack
from penstock.core.errors import InternalError
from penstock.core.tensor import Array, DataType, Tensor


class SupportsDLPack(Protocol):
    """A tensor of another library, such as torch."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


Value = Tensor | Array | SupportsDLPack | str | bytes | bool | int | float | Sequence[Any]
"""What may stand for a tensor: a string or number is one element, a sequence an array of them.

Sequences may be nested; their strings and bytes are the elements of a BYTES tensor. Numbers of
Python become INT64, FP64 or BOOL unless a datatype is asked for, as the outputs of a model do.
"""


def as_tensor(value: Value, datatype: DataType | None = None, rank: int = 1) -> Tensor:
    """The tensor that `value` stands for; a single element gets `rank` dimensions of length 1.

    `datatype` is what numbers of Python become; a value with a datatype of its own (a tensor, an
    array, strings) keeps it. Raises `ValueError` for what no tensor can hold, and `InternalError`
    for numbers that should become BF16.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray) and value.ndim:
        return Tensor.from_numpy(value, _bits(value, datatype))
    if isinstance(value, str | bytes):
        return Tensor.from_strings([value], (1,) * rank)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
        return dlpack.imported(value)
    if datatype is DataType.BF16:
        raise InternalError("BF16 numbers must come as a tensor, or as an array of their bits")
    array = np.asarray(value, dtype=datatype and datatype.numpy)
    if array.dtype.kind in "SU":  # in which numpy drops zero bytes at the end of a string
        array = np.asarray(value, dtype=np.object_)
    return Tensor.from_numpy(array if array.ndim else array.reshape((1,) * rank))


def _bits(array: Array, datatype: DataType | None) -> DataType | None:
    """BF16 for the bits of such numbers, which only the one who asks for them can know."""
    return datatype if datatype is DataType.BF16 and array.dtype == np.uint16 else None
