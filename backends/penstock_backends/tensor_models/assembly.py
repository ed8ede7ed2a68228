"""`Assembly`: joins requests into a batch and splits its outputs (contract C-12, C-18 to C-20)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from penstock.backend import Array, BatchInput, BatchInputKind, InternalError, ModelConfig
from penstock_backends.tensor_models.batch import by_rows
from penstock_backends.tensor_models.padding import Padding

Feeds = Mapping[str, Array]
"""The inputs of one request, or of a batch, by name."""


def _concatenated(_: str, arrays: Sequence[Array]) -> Array:
    return np.concatenate(arrays)


class Assembly:
    """Joins and splits the batches of one model.

    Plain inputs are joined along the batch dimension, ragged ones end to end in one dimension,
    padded ones after they are filled up; each element is copied once, by `join` to where the graph
    reads it.
    """

    def __init__(
        self, config: ModelConfig, join: Callable[[str, Sequence[Array]], Array] = _concatenated
    ) -> None:
        self._join = join
        self._padding = Padding.from_config(config)
        ragged = {t.name for t in config.input if t.allow_ragged_batch and config.max_batch_size}
        self._ragged = ragged - self._padding.values.keys()
        self._computed = config.batch_input
        self._scattered = {
            name: (tensor.source_input[0], config.outputs_by_name[name].backend_dims)
            for tensor in config.batch_output
            for name in tensor.target_name
        }
        self.targets = frozenset(n for tensor in config.batch_input for n in tensor.target_name)

    def joined(self, feeds: Sequence[Feeds]) -> dict[str, Array]:
        """The inputs of the batch, with its computed batch inputs."""
        batch = {name: self._joined(name, [feed[name] for feed in feeds]) for name in feeds[0]}
        return batch | computed(self._computed, feeds) if self._computed else batch

    def _joined(self, name: str, arrays: list[Array]) -> Array:
        if name in self._ragged:
            arrays = [array.reshape(-1) for array in arrays]
        if len(arrays) == 1:  # copied only if misaligned
            return arrays[0] if arrays[0].flags.aligned else arrays[0].copy()
        if name in self._padding.values:
            return self._padding.padded(name, arrays)
        return self._join(name, arrays)

    def split(
        self, name: str, array: Array, feeds: Sequence[Feeds], rows: Sequence[int]
    ) -> list[Array]:
        """Each request's part of an output, as views."""
        if name in self._scattered:
            source, dims = self._scattered[name]
            return _scattered(name, array, dims, [feed[source].shape for feed in feeds])
        parts = by_rows(name, array, rows)
        if name in self._padding.outputs:
            lengths = [feed[self._padding.source].shape[1] for feed in feeds]
            return [part[:, :length] for part, length in zip(parts, lengths, strict=True)]
        return parts


def _scattered(
    name: str, array: Array, dims: Sequence[int], sources: Sequence[tuple[int, ...]]
) -> list[Array]:
    """The parts in the order of the requests; variable dimensions are those of the source input."""
    shapes = [
        (source[0], *(own if dim < 0 else dim for dim, own in zip(dims, source[1:], strict=True)))
        for source in sources
    ]
    ends = np.cumsum([np.prod(shape, dtype=np.int64) for shape in shapes])
    if ends[-1] != array.size:
        raise InternalError(
            f"failed to split the output tensor '{name}' in responses: the source inputs have "
            f"{ends[-1]} elements, the model output has {array.size}"
        )
    pieces = np.split(array.reshape(-1), ends[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]


# -- batch inputs ----------------------------------------------------------------------------------

_Shapes = Sequence[tuple[int, ...]]
"""The shapes of one input in the requests of a batch, rows included."""


def computed(tensors: Sequence[BatchInput], feeds: Sequence[Feeds]) -> dict[str, Array]:
    """The arrays of all batch inputs, by target name."""
    arrays: dict[str, Array] = {}
    for tensor in tensors:
        array = _array(tensor, feeds)
        arrays |= dict.fromkeys(tensor.target_name, array)
    return arrays


def _array(tensor: BatchInput, feeds: Sequence[Feeds]) -> Array:
    (source,) = tensor.source_input
    if any(source not in feed for feed in feeds):
        raise InternalError(
            f"input '{source}' is missing, from which '{', '.join(tensor.target_name)}' is computed"
        )
    assert tensor.data_type is not None
    values = _KINDS[tensor.kind]([feed[source].shape for feed in feeds])
    return values.astype(tensor.data_type.numpy, copy=False)


def _counts(shapes: _Shapes) -> Array:
    return np.array([np.prod(shape, dtype=np.int64) for shape in shapes])


def _accumulated(shapes: _Shapes) -> Array:
    return np.cumsum(_counts(shapes))


def _accumulated_with_zero(shapes: _Shapes) -> Array:
    return np.concatenate([[0], _accumulated(shapes)])


def _as_long_as_the_largest(shapes: _Shapes) -> Array:
    """An array whose shape alone matters; its elements are arbitrary."""
    return np.zeros(_counts(shapes).max(), np.int64)


def _item_shapes(shapes: _Shapes) -> Array:
    """One line per row of the batch: the row's shape."""
    rows = [shape[0] for shape in shapes]
    return np.repeat([shape[1:] for shape in shapes], rows, axis=0)


def _flat_item_shapes(shapes: _Shapes) -> Array:
    return _item_shapes(shapes).reshape(-1)


_KINDS: Mapping[BatchInputKind, Callable[[_Shapes], Array]] = {
    BatchInputKind.BATCH_ELEMENT_COUNT: _counts,
    BatchInputKind.BATCH_ACCUMULATED_ELEMENT_COUNT: _accumulated,
    BatchInputKind.BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO: _accumulated_with_zero,
    BatchInputKind.BATCH_MAX_ELEMENT_COUNT_AS_SHAPE: _as_long_as_the_largest,
    BatchInputKind.BATCH_ITEM_SHAPE: _item_shapes,
    BatchInputKind.BATCH_ITEM_SHAPE_FLATTEN: _flat_item_shapes,
}
