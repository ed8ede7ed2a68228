"""Batch compatibility of requests: signatures (D-06, D-07, C-12, C-13) and lengths."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod

from penstock.core.config import ModelConfig, ModelInput
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor

Signature = Callable[[InferenceRequest], Hashable]
"""Computes a key that is equal for all requests of one batch."""


def signature_for(config: ModelConfig) -> Signature:
    """The cheapest signature that separates requests which must not share a batch.

    Inputs of fixed shape are equal in all requests, ragged ones may differ.
    """
    compared = [tensor for tensor in config.input if _varies(tensor)]
    contents = frozenset(tensor.name for tensor in config.input if tensor.is_shape_tensor)
    if any(tensor.optional for tensor in config.input):
        return _signature_of_present(frozenset(t.name for t in compared), contents)
    if contents:
        return _signature_of_contents([tensor.name for tensor in compared], contents)
    return (
        _signature_of_shapes([tensor.name for tensor in compared]) if compared else _same_signature
    )


def _varies(tensor: ModelInput) -> bool:
    return tensor.is_shape_tensor or (not tensor.allow_ragged_batch and -1 in tensor.dims)


def _same_signature(_: InferenceRequest) -> Hashable:
    return None


def _signature_of_shapes(names: Sequence[str]) -> Signature:
    if len(names) == 1:
        (name,) = names
        return lambda request: request.inputs[name].shape[1:]
    return lambda request: tuple(request.inputs[name].shape[1:] for name in names)


def _signature_of_contents(names: Sequence[str], contents: frozenset[str]) -> Signature:
    def signature(request: InferenceRequest) -> Hashable:
        return tuple(_compared(request.inputs[name], name in contents) for name in names)

    return signature


def _signature_of_present(names: frozenset[str], contents: frozenset[str]) -> Signature:
    def signature(request: InferenceRequest) -> Hashable:
        return frozenset(
            (name, _compared(tensor, name in contents) if name in names else None)
            for name, tensor in request.inputs.items()
        )

    return signature


def _compared(tensor: Tensor, contents: bool) -> Hashable:
    """The shape of a row; for a shape tensor, its values too."""
    shape = tensor.shape[1:]
    return (shape, bytes(tensor.buffer)) if contents else shape


def length(request: InferenceRequest) -> int:
    """Elements per row of the longest input; for strings, bytes, averaged over the rows."""
    return max((_row_length(tensor) for tensor in request.inputs.values()), default=0)


def _row_length(tensor: Tensor) -> int:
    if tensor.datatype is not DataType.BYTES:
        return prod(tensor.shape[1:])
    rows = max(tensor.shape[0], 1)
    return max(0, tensor.nbytes - 4 * prod(tensor.shape)) // rows
