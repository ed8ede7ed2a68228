"""`Padding`: pads inputs to the longest request of a batch, where configured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.backend import Array, ConfigError, DataType, ModelConfig

PADDING = "penstock.padding"
PADDED_OUTPUTS = "penstock.padded_outputs"


@dataclass(frozen=True, slots=True)
class Padding:
    """The padding values of inputs, and the outputs that have the padded length.

    Such outputs are cut to the length of each request's `source` input.
    """

    values: Mapping[str, Array] = field(default_factory=dict)
    outputs: frozenset[str] = frozenset()

    @classmethod
    def from_config(cls, config: ModelConfig) -> Padding:
        """Parse the parameters; raises `ConfigError` for tensors that cannot be padded."""
        text = config.parameter(PADDING)
        outputs = padded_outputs(config)
        values = dict(_value(config, part) for part in _names(text))
        for name in outputs:
            output = config.outputs_by_name.get(name)
            if not values or output is None or output.dims[:1] != (-1,):
                raise ConfigError(
                    f"parameter '{PADDED_OUTPUTS}': '{name}' must be an output of a model with"
                    f" '{PADDING}', and its first dimension variable"
                )
        return cls(values, frozenset(outputs))

    @property
    def source(self) -> str:
        """The input that defines the length of a request."""
        return next(iter(self.values))

    def padded(self, name: str, arrays: Sequence[Array]) -> Array:
        """All rows of the requests, each padded at its end; one copy."""
        shapes = [array.shape for array in arrays]
        width = tuple(map(max, zip(*(shape[1:] for shape in shapes), strict=True)))
        rows = sum(shape[0] for shape in shapes)
        joined = np.full((rows, *width), self.values[name])
        at = 0
        for array in arrays:
            end = at + array.shape[0]
            joined[(slice(at, end), *map(slice, array.shape[1:]))] = array
            at = end
        return joined


def padded_outputs(config: ModelConfig) -> list[str]:
    """The names of outputs with the padded length."""
    return _names(config.parameter(PADDED_OUTPUTS))


def _names(text: str | None) -> list[str]:
    return [part.strip() for part in text.split(",")] if text else []


def _value(config: ModelConfig, part: str) -> tuple[str, Array]:
    name, _, text = (piece.strip() for piece in part.partition("="))
    tensor = config.inputs_by_name.get(name)
    if tensor is None or not tensor.allow_ragged_batch or -1 not in tensor.backend_dims:
        raise ConfigError(
            f"parameter '{PADDING}': '{name}' must be an input with a variable dimension"
            " and allow_ragged_batch: true"
        )
    dtype = (tensor.data_type or DataType.BYTES).numpy
    if dtype.kind not in "biuf" or tensor.data_type is DataType.BF16:
        raise ConfigError(f"parameter '{PADDING}': input '{name}' does not hold numbers")
    try:
        return name, np.array(float(text) if dtype.kind == "f" else int(text), dtype)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"parameter '{PADDING}': '{part}' gives '{name}' no value that fits its data type; "
            f"write {name}=<number>"
        ) from error
