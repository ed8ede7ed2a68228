"""Validation rules of the settings, alone and in combination; texts are those of `tritonserver`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple


class SettingsError(ValueError):
    """Invalid or contradictory settings. The message is printed by the command line as it is."""


class Endpoint(NamedTuple):
    """One listening address; `name` is the endpoint's in error messages."""

    name: str
    address: str
    port: int


def check_startup_models(startup_models: Sequence[str], *, explicit: bool) -> None:
    """Models can be named for start-up only if clients control what is loaded."""
    if startup_models and not explicit:
        raise SettingsError(
            "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well."
        )


def check_ports(endpoints: Iterable[Endpoint]) -> None:
    """No two endpoints share a port; port 0, chosen by the system, never collides.

    A conflict names its two endpoints in the given order.
    """
    for one, other in combinations(endpoints, 2):
        if one.port and (one.address, one.port) == (other.address, other.port):
            raise SettingsError(
                f"The server cannot listen to {one.name} requests and {other.name} requests "
                f"at the same address and port {one.address}:{one.port}"
            )


def check_tenants(file: str, header: str, *, trust: bool) -> None:
    """Headers that name tenants are of use only where there are some."""
    if file:
        return
    if header:
        raise SettingsError("--tenant-header has no effect without --tenants")
    if trust:
        raise SettingsError("--trust-fairness-id has no effect without --tenants")


def check_shm_prefix(prefix: str, *, allowed: bool) -> None:
    """A prefix is the beginning of a name, and of use only where clients share memory."""
    if prefix and not allowed:
        raise SettingsError("--client-shm-prefix has no effect without --allow-client-shm=true")
    if "/" in prefix:
        raise SettingsError(f"--client-shm-prefix={prefix} cannot hold a slash")


def check_aliases(aliases: Mapping[str, str]) -> None:
    """An alias stands for a model, and not for itself or another alias."""
    for alias, model in aliases.items():
        if model == alias:
            raise SettingsError(f"--openai-alias={alias}={model} has no effect")
        if model in aliases:
            raise SettingsError(
                f"--openai-alias={alias}={model}: '{model}' is an alias too, of '{aliases[model]}';"
                " name the model"
            )


def check_safe_ports(endpoints: Iterable[Endpoint], safe_ports: tuple[int, int]) -> None:
    """SageMaker may confine every endpoint but its own to a range of ports, bounds included."""
    low, high = safe_ports
    for name, _, port in endpoints:
        if name != "SageMaker" and not low <= port <= high:
            raise SettingsError(
                f"The server cannot listen to {name} requests at port {port}, "
                f"allowed port range is [{low}, {high}]"
            )


def check_creation(
    models: Sequence[object], startup_models: Sequence[str], caches: Collection[str]
) -> None:
    """The rules that `tritonserver` applies when it creates the server, in its order.

    `models` are the sources of models: repositories and files.
    """
    problem = ""
    if not models:
        problem = "--model-repository must be specified"
    elif "*" in startup_models and len(startup_models) > 1:
        problem = "Wildcard model name '*' must be the ONLY startup model if specified at all."
    elif len(caches) > 1:
        problem = (
            "found multiple cache configurations, but only a single cache is currently supported"
        )
    if problem:
        raise SettingsError(f"error: creating server: Invalid argument - {problem}")
