"""Discovery of `penstock.model.Model` classes, and the configuration that they declare."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from penstock.core.config import ModelConfig as CoreConfig
from penstock.core.config import config_to_json
from penstock.core.errors import ConfigError, ModelLoadError
from penstock.model import Model
from penstock_backends.python.pb_utils.config import ModelConfig
from penstock_backends.python.process.plain_methods import is_plain_stream

_SCHEDULERS = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")


def find_model(module: ModuleType) -> type[Model] | None:
    """The model of a `model.py`: its only class made from `Model`; `None` when it has none."""
    classes = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Model) and value is not Model
    ]
    # Classes that are imported, or bases of others here, are not models themselves.
    leaves = {c for c in classes if not any(c in other.__mro__[1:] for other in classes)}
    own = [cls for cls in leaves if cls.__module__ == module.__name__] or list(leaves)
    if len(own) > 1:
        names = ", ".join(sorted(cls.__name__ for cls in own))
        raise ModelLoadError(f"'{module.__file__}' has more than one model: {names}")
    return own[0] if own else None


def is_stream(cls: type[Model]) -> bool:
    """Whether the model streams its responses, which makes it decoupled."""
    return inspect.isasyncgenfunction(cls.infer) or is_plain_stream(cls.infer)


def completed_config(cls: type[Model], given: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration, as JSON, completed by the class's own; raises `ValueError` on conflicts."""
    declared: object = cls.config
    if not isinstance(declared, CoreConfig):
        kind = type(declared).__name__
        raise ConfigError(f"'{cls.__name__}.config' must be a ModelConfig, not {kind}")
    own = config_to_json(declared)
    completion = ModelConfig(json.dumps(given))
    config = completion.as_dict()
    for tensor in own.pop("input", ()):
        _add(
            completion.add_input, config["input"], tensor, ("name", "data_type", "dims", "optional")
        )
    for tensor in own.pop("output", ()):
        _add(completion.add_output, config["output"], tensor, ("name", "data_type", "dims"))
    rows = own.pop("max_batch_size", 0)
    if rows and not 0 < config["max_batch_size"] <= rows:  # a file may ask for smaller batches
        completion.set_max_batch_size(rows)
    _complete_policy(cls, completion)
    _fill(config, own)
    return config


def _add(
    add: Callable[[Mapping[str, Any]], None],
    declared: Sequence[dict[str, Any]],
    tensor: Mapping[str, Any],
    properties: Sequence[str],
) -> None:
    """Add a tensor with the properties that are checked, then with its others."""
    add({name: tensor[name] for name in properties if name in tensor})
    found = next(other for other in declared if other["name"] == tensor["name"])
    _fill(found, tensor)


def _complete_policy(cls: type[Model], completion: ModelConfig) -> None:
    if is_stream(cls) or completion.as_dict().get("model_transaction_policy"):
        completion.set_model_transaction_policy({"decoupled": is_stream(cls)})


def _fill(given: dict[str, Any], own: Mapping[str, Any]) -> None:
    """Copy the fields that are missing; a configuration has at most one scheduler."""
    scheduled = any(given.get(name) is not None for name in _SCHEDULERS)
    for name, value in own.items():
        if not given.get(name) and not (scheduled and name in _SCHEDULERS):
            given[name] = value
