"""Reshapes inputs and outputs between clients' shapes and the model's (V-13, C-10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from penstock.core.config import ModelConfig
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reshape:
    """Maps shapes that match `pattern` to `target`; the batch dimension is kept.

    Variable dimensions correspond in order. Shapes that do not match are kept.
    """

    pattern: Shape
    target: Shape
    batched: bool = False

    def __call__(self, shape: Shape) -> Shape:
        batch, dims = (shape[:1], shape[1:]) if self.batched else ((), shape)
        if not self._fits(dims):
            return shape
        variable = (n for n, given in zip(dims, self.pattern, strict=True) if given == -1)
        return batch + tuple(next(variable) if n == -1 else n for n in self.target)

    def _fits(self, dims: Shape) -> bool:
        return len(dims) == len(self.pattern) and all(
            n in (-1, m) for n, m in zip(self.pattern, dims, strict=True)
        )


def request_reshape(config: ModelConfig) -> Callable[[InferenceRequest], InferenceRequest] | None:
    """A transform of inputs to the model's shapes; `None` if none is reshaped."""
    reshapes = {
        tensor.name: Reshape(tensor.dims, tensor.reshape.shape, config.max_batch_size > 0)
        for tensor in config.input
        if tensor.reshape is not None
    }
    if not reshapes:
        return None
    return lambda request: replace(request, inputs=_reshaped(request.inputs, reshapes))


def response_reshape(
    config: ModelConfig,
) -> Callable[[InferenceResponse], InferenceResponse] | None:
    """A transform of outputs to clients' shapes; `None` if none is reshaped."""
    reshapes = {
        tensor.name: Reshape(tensor.reshape.shape, tensor.dims, config.max_batch_size > 0)
        for tensor in config.output
        if tensor.reshape is not None
    }
    if not reshapes:
        return None
    return lambda response: response.with_outputs(_reshaped(response.outputs, reshapes))


def _reshaped(tensors: Mapping[str, Tensor], reshapes: Mapping[str, Reshape]) -> dict[str, Tensor]:
    return {
        name: tensor.reshaped(reshapes[name](tensor.shape)) if name in reshapes else tensor
        for name, tensor in tensors.items()
    }
