"""`Graph`: a model that an engine has opened, and how scalars pass through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from penstock.backend import Array, DataType, ModelConfig, Tensor


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """An input or output of a graph; -1 in `dims` stands for any length."""

    name: str
    datatype: DataType
    dims: tuple[int, ...]
    is_shape: bool = False
    """Whether its values are what shapes follow from."""
    is_linear: bool = True
    """Whether its elements lie in memory as its shape says."""

    def cast(self, values: Array) -> Array:
        """Numbers in this datatype: whole ones rounded and bounded, BF16 as bit patterns."""
        if self.datatype is DataType.BF16:
            bits = values.astype(np.float32).view(np.uint32)
            return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        kind = self.datatype.numpy
        if kind.kind in "iu":
            bounds = np.iinfo(kind)
            return np.rint(values.astype(np.float64)).clip(bounds.min, bounds.max).astype(kind)
        return values.astype(kind, copy=False)


class Graph(Protocol):
    """A model that an engine has opened for one instance; called on the instance's thread."""

    engine: str
    """The engine's name in errors, such as `ONNX`."""
    inputs: dict[str, GraphTensor]
    """The inputs that `run` needs, by name."""
    defaults: dict[str, GraphTensor]
    """Inputs that may be missing, as the graph has values for them."""
    outputs: dict[str, GraphTensor]

    def array(self, name: str, tensor: Tensor) -> Array:
        """The array for `run` of a request's tensor; raises `InvalidRequestError`."""
        return tensor.numpy()

    def joined(self, name: str, arrays: Sequence[Array]) -> Array:
        """The rows of several requests as one array for the next `run`, copied once."""
        return np.concatenate(arrays)

    def run(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        """The outputs `names`. Blocks; raises `InternalError`.

        BF16 are bit patterns both ways, strings of outputs objects of `bytes`.
        """
        ...

    def close(self) -> None:
        """Release what does not go with the object itself."""
        return


# -- scalars, declared as one element since a configuration needs dims -----------------------------


def scalar_inputs(config: ModelConfig, found: Mapping[str, GraphTensor]) -> frozenset[str]:
    """The inputs that are scalars in the graph."""
    if config.max_batch_size > 0:
        return frozenset()
    return frozenset(tensor.name for tensor in config.input if not found[tensor.name].dims)


def as_scalar(array: Array) -> Array:
    """An array of one element as a scalar; any other unchanged."""
    return array.reshape(()) if array.shape == (1,) else array


def scalar_outputs(config: ModelConfig) -> frozenset[str]:
    """The outputs declared as one element, which may be scalars in the graph."""
    if config.max_batch_size > 0:
        return frozenset()
    return frozenset(tensor.name for tensor in config.output if tensor.backend_dims == (1,))


def as_element(array: Array) -> Array:
    """A scalar as an array of one element; any other unchanged."""
    return array.reshape((1,)) if array.shape == () else array
