"""Whether a configuration as a whole makes sense; problems are told in the words clients know.

Each module has rules: functions that yield what is wrong with a configuration, worst first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError
from penstock.models.config.validation.batching import batching_problems, sequence_problems
from penstock.models.config.validation.ensembles import ensemble_problems
from penstock.models.config.validation.model import (
    backend_problems,
    cache_problems,
    instance_problems,
    metric_problems,
)
from penstock.models.config.validation.tensors import batch_tensor_problems, tensor_problems

__all__ = ["validate", "validate_polled"]

Rule = Callable[[ModelConfig], Iterator[str]]

_POLLED: tuple[Rule, ...] = (
    backend_problems,
    batching_problems,
    sequence_problems,
    ensemble_problems,
    cache_problems,
    metric_problems,
)
_COMPLETE: tuple[Rule, ...] = (*_POLLED, tensor_problems, batch_tensor_problems)


def validate_polled(config: ModelConfig) -> None:
    """Refuse what is wrong before a backend has completed the configuration.

    These problems keep a model from being polled at all; tensors and instances are not looked at.
    """
    _refuse(problem for rule in _POLLED for problem in rule(config))


def validate(config: ModelConfig, gpus: Sequence[int] = ()) -> None:
    """Refuse a complete, normalised configuration that is wrong; `gpus` may be used."""
    _refuse(problem for rule in _COMPLETE for problem in rule(config))
    _refuse(instance_problems(config, gpus))


def _refuse(problems: Iterator[str]) -> None:
    for problem in problems:
        raise ConfigError(problem)
