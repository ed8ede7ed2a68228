"""Views of the server and its models: metadata, statistics and index, as frozen values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.core.engine_facts import EngineFacts
from penstock.core.errors import InvalidRequestError
from penstock.models.releases.alias import Alias
from penstock.models.serving.answers import ModelStatistics
from penstock.models.serving.catalog import UNLOADED, VersionState, VersionStatus, failed_reload
from penstock.models.serving.loaded_model import LoadedModel

_TWICE = "model appears in two or more repositories"
_UNAVAILABLE = VersionState.UNAVAILABLE.value

RESIDENT = "penstock-resident"
"""HTTP header, and trailing metadata of gRPC, of an answer that a model is ready: whether it is
loaded, where calls load models.
"""


class Engine(NamedTuple):
    """A language model for routers of engines: its name, its facts, and what serves it now."""

    name: str
    facts: EngineFacts
    model: LoadedModel


EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)
"""Protocol extensions, from which clients detect features, in their order (G-05)."""


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    """Name, version and protocol extensions of the server (G-04)."""

    name: str
    version: str
    extensions: tuple[str, ...] = EXTENSIONS


@dataclass(frozen=True, slots=True)
class ModelIndexEntry:
    """An entry of the repository index (X-16); version and state are empty if never loaded."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EngineControlled:
    """What the instances of a model version returned for a command, by their names."""

    name: str
    version: str
    instances: Mapping[str, Any]


def model_statistics(
    name: str, served: Collection[LoadedModel], version: int | None
) -> tuple[ModelStatistics, ...]:
    """Counters of the versions of a model that are served, or of one of them.

    Raises `InvalidRequestError` where there are none.
    """
    if not served:
        raise InvalidRequestError(f"requested model '{name}' is not available")
    found = tuple(model.snapshot for model in served if version in (None, model.version))
    if not found:
        raise InvalidRequestError(f"requested model version is not available for model '{name}'")
    return found


def model_index(
    names: Set[str],
    twice: Set[str],
    attempted: Iterable[str],
    statuses: Iterable[tuple[str, int, VersionStatus]],
    failures: Mapping[str, str] | None = None,
) -> list[ModelIndexEntry]:
    """The entries of all models, sorted by name: one for each version ever loaded or attempted.

    `names` are the models of the repositories, `twice` those in more than one, `attempted` those in
    the catalog; `failures` are the reasons of last loads that failed. As in Triton, models that are
    not in a repository have no entry.
    """
    failures = failures or {}
    entries = [
        _entry(name, version, status, failures.get(name, ""))
        for name, version, status in statuses
        if name in names - twice
    ]
    entries += [ModelIndexEntry(n, "", _UNAVAILABLE, _TWICE) for n in twice]
    entries += [_unread(n, failures.get(n, "")) for n in names - twice - {*attempted}]
    return sorted(entries, key=lambda entry: entry.name)


def unloaded(entry: ModelIndexEntry, reason: str) -> ModelIndexEntry:
    """The entry of a model that rests, or is not loaded, for a `reason`, unless it has its own."""
    if reason and entry.state == VersionState.READY.value and not entry.reason:
        return replace(entry, reason=reason)
    if not reason or entry.state not in ("", _UNAVAILABLE) or entry.reason not in ("", UNLOADED):
        return entry
    return replace(entry, state=_UNAVAILABLE, reason=reason)


def alias_entry(alias: Alias) -> ModelIndexEntry:
    """The entry of an alias, whose reason tells its targets."""
    return ModelIndexEntry(alias.name, "", VersionState.READY.value, f"alias of {alias.shares}")


def _unread(name: str, failure: str) -> ModelIndexEntry:
    """The entry of a model without versions so far, which may be because it cannot be read."""
    return ModelIndexEntry(name, "", _UNAVAILABLE if failure else "", failure)


def _entry(name: str, version: int, status: VersionStatus, failure: str) -> ModelIndexEntry:
    """The entry of a version; one whose processes are down for good is unavailable.

    One that serves on after the `failure` of a reload says so.
    """
    if status.model is not None and (loss := status.model.loss):
        return ModelIndexEntry(name, str(version), _UNAVAILABLE, loss)
    reason = status.reason
    if status.state is VersionState.READY and failure and not reason:
        reason = failed_reload(failure)
    return ModelIndexEntry(name, str(version), status.state.value, reason)
