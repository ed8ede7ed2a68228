"""`Assembly`: joins requests into a batch and splits its outputs (contract C-12, C-18, C-20)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.backend import Array, InternalError, ModelConfig
from penstock_backends.onnxruntime.batch import by_rows
from penstock_backends.onnxruntime.batch_inputs import computed
from penstock_backends.onnxruntime.padding import Padding

Feeds = Mapping[str, Array]
"""The inputs of one request, or of a batch, by name."""


class Assembly:
    """Joins and splits the batches of one model.

    Plain inputs are joined along the batch dimension, ragged ones end to end in one dimension,
    padded ones after they are filled up; each element is copied once, to where the graph reads it.
    """

    def __init__(self, config: ModelConfig) -> None:
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
        return np.concatenate(arrays)

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
