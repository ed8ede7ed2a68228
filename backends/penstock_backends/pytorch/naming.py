"""Where the tensors of a configuration are among a model's arguments and results (B-08)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.backend import ConfigError, ModelConfig

logger = logging.getLogger(__name__)


def input_names(config: ModelConfig) -> list[str]:
    """All inputs of the model in their order: declared, computed for a batch, of sequences."""
    names = [tensor.name for tensor in config.input]
    names += [name for tensor in config.batch_input for name in tensor.target_name]
    if sequences := config.sequence_batching:
        names += [control.name for control in sequences.control_input]
        names += [state.input_name for state in sequences.state]
    return names


def output_names(config: ModelConfig) -> list[str]:
    """All outputs of the model in their order, those that are states last."""
    names = [*config.outputs_by_name]
    if sequences := config.sequence_batching:
        names += [state.output_name for state in sequences.state]
    return [*dict.fromkeys(names)]


def places(model: str, what: str, names: Sequence[str], *known: Sequence[str]) -> dict[str, int]:
    """The position of each tensor: by a name that the model knows, by index, or by order.

    Each of `known` are names that the model itself has for all its positions.
    """
    for own in known:
        if own and set(names) <= set(own):
            return {name: own.index(name) for name in names}
    by_index = {name: index for name in names if (index := index_of(name)) is not None}
    if len(by_index) == len(names):
        return by_index
    logger.warning(
        "model '%s': its %ss are taken in the order of the configuration, since not all of their"
        " names are the model's own or end with __<index>",
        model,
        what,
    )
    return {name: place for place, name in enumerate(names)}


def index_of(name: str) -> int | None:
    """The number in `<name>__<number>`, which begins after the first `__`."""
    _, dashes, digits = name.partition("__")
    return int(digits) if dashes and digits.isdecimal() else None


def check_states(config: ModelConfig) -> None:
    """Refuse states of sequences whose tensors are not known by index; raises `ConfigError`."""
    sequences = config.sequence_batching
    if sequences is None or not sequences.state:
        return
    if any(index_of(name) is None for name in [*input_names(config), *output_names(config)]):
        raise ConfigError(
            f"PyTorch model '{config.name}' is using sequence batching with state but not all"
            " inputs and outputs follow the <name>__<index> naming convention. "
        )
