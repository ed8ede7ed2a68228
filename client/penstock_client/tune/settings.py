"""Settings of a model that can be searched: where each stands, and how it is read and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OFF = "off"
"""The queue delay of a model without dynamic batching."""

INSTANCES, BATCH, DELAY, CACHE = "instances", "max_batch_size", "queue_delay", "cache"
PARAMETER, ENGINE = "parameter.", "engine."
"""What names of further settings begin with: parameters of `config.pbtxt`, keys of `model.json`.

Any other name is a path into `config.pbtxt`, such as `dynamic_batching.preferred_batch_size`.
"""

_PATHS = {
    DELAY: "dynamic_batching.max_queue_delay_microseconds",
    CACHE: "response_cache.enable",
}

Config = dict[str, Any]
"""A configuration in the JSON form of protobuf, with the names of `config.pbtxt`."""


def original(name: str, config: Mapping[str, Any], engine: Mapping[str, Any]) -> Any:
    """The value that a model has; `None` if it leaves the setting open."""
    if name == INSTANCES:
        groups = config.get("instance_group") or [{}]
        return int(groups[0].get("count", 1))
    if name == BATCH:
        return int(config.get(BATCH, 0))
    if name == DELAY:
        batching = config.get("dynamic_batching")
        return OFF if batching is None else int(batching.get("max_queue_delay_microseconds", 0))
    if name == CACHE:
        return bool(config.get("response_cache", {}).get("enable", False))
    if name.startswith(PARAMETER):
        entry = config.get("parameters", {}).get(name.removeprefix(PARAMETER), {})
        return entry.get("string_value")
    if name.startswith(ENGINE):
        return engine.get(name.removeprefix(ENGINE))
    return _at(config, name.split("."))


def _at(config: Any, path: list[str]) -> Any:
    """The value at a path; whole numbers as such, though protobuf writes large ones as text."""
    for name in path:
        config = config.get(name) if isinstance(config, Mapping) else None
    if isinstance(config, str) and config.lstrip("-").isdigit():
        return int(config)
    return config


def change(config: Config, name: str, value: Any) -> None:
    """Write one setting into a configuration; those of the engine are not in it."""
    if name == INSTANCES:
        for group in config.setdefault("instance_group", [{}]):
            group["count"] = value
    elif name == DELAY and value == OFF:
        config.pop("dynamic_batching", None)
    elif name.startswith(PARAMETER):
        parameters = config.setdefault("parameters", {})
        parameters[name.removeprefix(PARAMETER)] = {"string_value": str(value)}
    elif not is_engine(name):
        *heads, last = _PATHS.get(name, name).split(".")
        for head in heads:
            config = config.setdefault(head, {})
        config[last] = value


def engine_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's part of a variant's changes, by its own names."""
    return {name.removeprefix(ENGINE): value for name, value in changes.items() if is_engine(name)}


def is_engine(name: str) -> bool:
    """Whether a setting stands in `model.json`."""
    return name.startswith(ENGINE)
