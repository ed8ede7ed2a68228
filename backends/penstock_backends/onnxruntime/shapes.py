"""`Reshape`: between the shape that clients use and the one that the graph uses (contract C-10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.config import ModelConfig
from penstock.core.tensor import Array
from penstock_backends.onnxruntime.graph import GraphTensor


@dataclass(frozen=True, slots=True)
class Reshape:
    """From shapes like `pattern` to shapes like `target`; a batch dimension stays outside.

    The variable dimensions of both correspond in order. Another shape stays as it is.
    """

    pattern: tuple[int, ...]
    target: tuple[int, ...]
    batched: bool = False

    def __call__(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        batch, dims = (shape[:1], shape[1:]) if self.batched else ((), shape)
        if not self._fits(dims):
            return shape
        variable = (n for n, given in zip(dims, self.pattern, strict=True) if given == -1)
        return batch + tuple(next(variable) if n == -1 else n for n in self.target)

    def _fits(self, dims: tuple[int, ...]) -> bool:
        return len(dims) == len(self.pattern) and all(
            n in (-1, m) for n, m in zip(self.pattern, dims, strict=True)
        )


def reshaped(array: Array, reshape: Reshape | None) -> Array:
    """A view of `array` in the other shape; `array` itself where there is none."""
    return array if reshape is None else array.reshape(reshape(array.shape))


def input_reshapes(config: ModelConfig, found: Mapping[str, GraphTensor]) -> dict[str, Reshape]:
    """How the inputs have to be reshaped; without those that need not be."""
    batched = config.max_batch_size > 0
    reshapes = {}
    for tensor in config.input:
        if tensor.reshape is not None:
            reshapes[tensor.name] = Reshape(tensor.dims, tensor.reshape.shape, batched)
        elif not batched and not found[tensor.name].dims:
            reshapes[tensor.name] = Reshape((1,), ())  # a scalar, declared with dims: [ 1 ]
    return reshapes


def output_reshapes(config: ModelConfig) -> dict[str, Reshape]:
    """How the outputs have to be reshaped; without those that need not be."""
    batched = config.max_batch_size > 0
    reshapes = {}
    for tensor in config.output:
        if tensor.reshape is not None:
            reshapes[tensor.name] = Reshape(tensor.reshape.shape, tensor.dims, batched)
        elif not batched and tensor.dims == (1,):
            reshapes[tensor.name] = Reshape((), (1,))  # a scalar, declared with dims: [ 1 ]
    return reshapes
