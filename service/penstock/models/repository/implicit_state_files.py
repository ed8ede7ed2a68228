"""Reads the implicit states of sequences and the files of their initial values (S-17)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path

from penstock.core.config import InitialState, ModelConfig, SequenceState
from penstock.core.errors import ConfigError
from penstock.core.tensor import DataType, Tensor
from penstock.models.config.validation.files import INITIAL_STATES
from penstock.models.repository.named_file import read_named
from penstock.scheduling.sequences.implicit_state import ImplicitStates, StateTensor


def read_states(config: ModelConfig, model_path: Path) -> ImplicitStates:
    """The implicit states of a model's sequences. Reads the files of initial values."""
    assert config.sequence_batching is not None
    batch = (1,) if config.max_batch_size else ()
    tensors: list[StateTensor] = []
    for state in config.sequence_batching.state:
        if any(known.input_name == state.input_name for known in tensors):
            raise ConfigError(f"State input name '{state.input_name}' specified more than once.")
        first = _initial_value(state, batch, model_path)
        tensors.append(StateTensor(state.input_name, state.output_name, first))
    return ImplicitStates(tensors, tuple(config.outputs_by_name))


def _initial_value(state: SequenceState, batch: tuple[int, ...], model_path: Path) -> Tensor:
    if len(state.initial_state) > 1:
        raise ConfigError(
            f"initial_state field for state input '{state.input_name}' must contain exactly one"
            f" or zero element. Found '{len(state.initial_state)}' elements."
        )
    datatype = state.data_type or DataType.INVALID
    if not state.initial_state:
        # Without an initial value the state is zero; variable dimensions have length 1.
        shape = (*batch, *(1 if dim == -1 else dim for dim in state.dims))
        return Tensor(datatype, shape, bytes(_size(datatype, shape)))
    given = state.initial_state[0]
    _check(state, given)
    shape = (*batch, *given.dims)
    return Tensor(datatype, shape, _data(state, given, _size(datatype, shape), model_path))


def _size(datatype: DataType, shape: Sequence[int]) -> int:
    """The size of a tensor in bytes; strings are empty, so only their length prefixes count."""
    return prod(shape) * (datatype.itemsize or 4)


def _check(state: SequenceState, given: InitialState) -> None:
    name = state.input_name
    if given.data_type is not state.data_type:
        raise ConfigError(
            f"The data type used for 'initial_state' field of state '{name}' does not match the"
            " state data type."
        )
    if not given.name:
        raise ConfigError(
            f"Field 'name' must be set when using initial_state for state input '{name}'."
        )
    if len(given.dims) != len(state.dims):
        raise ConfigError(
            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions"
            f" for state input '{name}'. {len(given.dims)} != {len(state.dims)}"
        )
    for own, declared in zip(given.dims, state.dims, strict=True):
        if own == -1:
            raise ConfigError(
                f"'initial_state' field for state input name '{name}' contains variable dimensions."
            )
        if declared not in (-1, own):
            raise ConfigError(
                f"'initial_state' dim for input name '{name}' doesn't match 'state' dim"
                f" description. {own} != {declared}"
            )


def _data(state: SequenceState, given: InitialState, size: int, model_path: Path) -> bytes:
    if given.zero_data is not None:
        return bytes(size)
    if given.data_file is None:
        raise ConfigError(
            f"initial_state setting expects state'{state.input_name}' to have state_data set"
        )
    data = read_named(model_path, f"{INITIAL_STATES}/{given.data_file}")
    if given.data_type is DataType.BYTES:
        return data
    if len(data) < size:
        raise ConfigError(
            f"initial_state setting expects {size} bytes, but the data provided from"
            f" {given.data_file}only has {len(data)} bytes."
        )
    return data[:size]
