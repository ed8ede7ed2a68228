"""Validation of model configurations. Messages are Triton's.

A rule is a generator of the problems of a configuration, most important first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError
from penstock.models.config.pins import pin_problems
from penstock.models.config.validation.batching import batching_problems, sequence_problems
from penstock.models.config.validation.ensembles import ensemble_problems
from penstock.models.config.validation.files import file_problems
from penstock.models.config.validation.model import (
    backend_problems,
    cache_problems,
    instance_problems,
    metric_problems,
    parameter_problems,
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
    parameter_problems,
    file_problems,
    pin_problems,
)
_COMPLETE: tuple[Rule, ...] = (*_POLLED, tensor_problems, batch_tensor_problems)


def validate_polled(config: ModelConfig) -> None:
    """Validate a configuration before its backend completes it; raises `ConfigError`.

    Tensors and instances are not checked yet. A model with such a problem is not read at all.
    """
    _refuse(problem for rule in _POLLED for problem in rule(config))


def validate(config: ModelConfig, gpus: Sequence[int] = ()) -> None:
    """Validate a complete configuration; `gpus` are available. Raises `ConfigError`."""
    _refuse(problem for rule in _COMPLETE for problem in rule(config))
    _refuse(instance_problems(config, gpus))


def _refuse(problems: Iterator[str]) -> None:
    for problem in problems:
        raise ConfigError(problem)
