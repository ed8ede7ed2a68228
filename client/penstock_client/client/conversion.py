"""Conversion of what callers pass, lists and strings too, to tensors of a model's datatypes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.core.nearest_name import suggestion
from penstock.core.tensor import Array, DataType, Tensor
from penstock_client.client.errors import InvalidArgumentError
from penstock_client.client.shared_memory import SharedTensor
from penstock_client.reading.views import ModelMetadata, TensorMetadata

Value = Any
"""An array, a `Tensor`, a `SharedTensor`, a number, a string, or lists of these two."""


def is_typed(value: Value) -> bool:
    """Whether a value says its own datatype and shape."""
    return isinstance(value, np.ndarray | np.generic | Tensor | SharedTensor)


def typed(value: Any) -> Tensor | SharedTensor:
    """A tensor over a value that has a datatype; the memory of an array is not copied."""
    if isinstance(value, Tensor | SharedTensor):
        return value
    try:
        return Tensor.from_numpy(np.asarray(value))
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None


def converted(
    values: Mapping[str, Value], metadata: ModelMetadata
) -> dict[str, Tensor | SharedTensor]:
    """Tensors of all values, those without a datatype in that of the model's input."""
    known = {tensor.name: tensor for tensor in metadata.inputs}
    return {
        name: typed(value) if is_typed(value) else as_input(value, _input(name, known, metadata))
        for name, value in values.items()
    }


def as_input(value: Any, known: TensorMetadata) -> Tensor:
    """A value in the datatype of an input, and its shape where that leaves no choice."""
    datatype = DataType(known.datatype)
    try:
        array = _bfloat16(value) if datatype is DataType.BF16 else _array(value, datatype)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgumentError(
            f"the value of input '{known.name}' is not {known.datatype}: {error}"
        ) from None
    return Tensor.from_numpy(array.reshape(fitted(array.shape, known.shape)), datatype)


def fitted(shape: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """The shape of an input for as many elements as `shape` has, which has too few dimensions.

    Variable dimensions are 1, but for the last, which takes the rest. What does not fit stays as
    it is, so that the server says what it wants.
    """
    if len(shape) >= len(wanted):
        return tuple(shape)
    rest = int(np.prod(shape, dtype=np.int64))
    for size in wanted:
        if size > 0:
            rest, left = divmod(rest, size)
            if left:
                return tuple(shape)
    made = list(wanted)
    for at in reversed(range(len(made))):
        if made[at] < 0:
            made[at], rest = rest, 1
    fits = np.prod(made, dtype=np.int64) == np.prod(shape, dtype=np.int64)
    return tuple(made) if fits else tuple(shape)


def _input(
    name: str, known: Mapping[str, TensorMetadata], metadata: ModelMetadata
) -> TensorMetadata:
    found = known.get(name)
    if found is None:
        raise InvalidArgumentError(unknown_input(name, known, metadata.name))
    return found


def unknown_input(name: str, known: Iterable[str], model: str) -> str:
    """The error text for an input that a model does not have."""
    names = list(known)
    near = suggestion(name, names)
    return f"model '{model}' has no input '{name}'; it has {', '.join(names) or 'none'}{near}"


def _array(value: Any, datatype: DataType) -> Array:
    if datatype is DataType.BOOL:
        return _checked(np.array(value), "b").astype(np.bool_)
    if datatype is DataType.BYTES:
        return np.array(value, dtype=np.object_)
    array = np.array(value)
    if datatype.numpy.kind in "iu":
        _checked(array, "biu")
        whole = np.array(value, dtype=datatype.numpy)
        if array.size and not np.array_equal(whole, array):
            raise ValueError("a number is out of range")
        return whole
    return _checked(array, "biuf").astype(datatype.numpy)


def _checked(array: Array, kinds: str) -> Array:
    """`array`, if its elements are of these kinds of numpy; an empty one is."""
    if array.size and array.dtype.kind not in kinds:
        (first,) = array.reshape(-1)[:1].tolist()  # as Python's own, not numpy's, which is printed
        raise ValueError(f"{first!r} is of another type")
    return array


def _bfloat16(value: Any) -> Array:
    """The bits of the nearest BF16 numbers, ties to even."""
    bits = np.array(value, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
