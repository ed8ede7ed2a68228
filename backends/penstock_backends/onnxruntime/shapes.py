"""Shapes of a graph's scalars, which are declared as one element: a configuration needs dims."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.backend import Array, ModelConfig
from penstock_backends.onnxruntime.graph import GraphTensor


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
