"""Scalars of a graph, which are one element outside since a configuration needs dimensions."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.backend import Array, ModelConfig
from penstock_backends.onnxruntime.graph import GraphTensor


def scalar_inputs(config: ModelConfig, found: Mapping[str, GraphTensor]) -> frozenset[str]:
    """The inputs that the graph wants without any dimension."""
    if config.max_batch_size > 0:
        return frozenset()
    return frozenset(tensor.name for tensor in config.input if not found[tensor.name].dims)


def as_scalar(array: Array) -> Array:
    """One element without its dimension; another array as it is."""
    return array.reshape(()) if array.shape == (1,) else array


def scalar_outputs(config: ModelConfig) -> frozenset[str]:
    """The outputs that have one element outside, and may be scalars of the graph."""
    if config.max_batch_size > 0:
        return frozenset()
    return frozenset(tensor.name for tensor in config.output if tensor.backend_dims == (1,))


def as_element(array: Array) -> Array:
    """A scalar as one element; another array as it is."""
    return array.reshape((1,)) if array.shape == () else array
