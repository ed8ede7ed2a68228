"""Computation of `batch_input` tensors (contract C-18, C-19)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from penstock.backend import Array, BatchInput, BatchInputKind, InternalError

Shapes = Sequence[tuple[int, ...]]
"""The shapes of one input in the requests of a batch, rows included."""


def computed(
    tensors: Sequence[BatchInput], feeds: Sequence[Mapping[str, Array]]
) -> dict[str, Array]:
    """The arrays of all batch inputs, by target name."""
    arrays: dict[str, Array] = {}
    for tensor in tensors:
        array = _array(tensor, feeds)
        arrays |= dict.fromkeys(tensor.target_name, array)
    return arrays


def _array(tensor: BatchInput, feeds: Sequence[Mapping[str, Array]]) -> Array:
    (source,) = tensor.source_input
    if any(source not in feed for feed in feeds):
        raise InternalError(
            f"input '{source}' is missing, from which '{', '.join(tensor.target_name)}' is computed"
        )
    assert tensor.data_type is not None
    values = _KINDS[tensor.kind]([feed[source].shape for feed in feeds])
    return values.astype(tensor.data_type.numpy, copy=False)


def _counts(shapes: Shapes) -> Array:
    return np.array([np.prod(shape, dtype=np.int64) for shape in shapes])


def _accumulated(shapes: Shapes) -> Array:
    return np.cumsum(_counts(shapes))


def _accumulated_with_zero(shapes: Shapes) -> Array:
    return np.concatenate([[0], _accumulated(shapes)])


def _as_long_as_the_largest(shapes: Shapes) -> Array:
    """An array whose shape alone matters; its elements are arbitrary."""
    return np.zeros(_counts(shapes).max(), np.int64)


def _item_shapes(shapes: Shapes) -> Array:
    """One line per row of the batch: the row's shape."""
    rows = [shape[0] for shape in shapes]
    return np.repeat([shape[1:] for shape in shapes], rows, axis=0)


def _flat_item_shapes(shapes: Shapes) -> Array:
    return _item_shapes(shapes).reshape(-1)


_KINDS: Mapping[BatchInputKind, Callable[[Shapes], Array]] = {
    BatchInputKind.BATCH_ELEMENT_COUNT: _counts,
    BatchInputKind.BATCH_ACCUMULATED_ELEMENT_COUNT: _accumulated,
    BatchInputKind.BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO: _accumulated_with_zero,
    BatchInputKind.BATCH_MAX_ELEMENT_COUNT_AS_SHAPE: _as_long_as_the_largest,
    BatchInputKind.BATCH_ITEM_SHAPE: _item_shapes,
    BatchInputKind.BATCH_ITEM_SHAPE_FLATTEN: _flat_item_shapes,
}
