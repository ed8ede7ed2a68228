"""Views of the server and its model repository, as frozen values: metadata and index."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from penstock.models.serving.catalog import VersionState, VersionStatus

_TWICE = "model appears in two or more repositories"

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


def model_index(
    names: Set[str],
    twice: Set[str],
    attempted: Iterable[str],
    statuses: Iterable[tuple[str, int, VersionStatus]],
) -> list[ModelIndexEntry]:
    """The entries of all models, sorted by name: one for each version ever loaded or attempted.

    `names` are the models of the repositories, `twice` those in more than one, `attempted` those in
    the catalog. As in Triton, models that are not in a repository have no entry.
    """
    entries = [_entry(*version) for version in statuses if version[0] in names - twice]
    entries += [ModelIndexEntry(n, "", VersionState.UNAVAILABLE.value, _TWICE) for n in twice]
    entries += [ModelIndexEntry(n) for n in names - twice - {*attempted}]
    return sorted(entries, key=lambda entry: entry.name)


def _entry(name: str, version: int, status: VersionStatus) -> ModelIndexEntry:
    """The entry of a version; one whose processes are down for good is unavailable."""
    if status.model is not None and (loss := status.model.loss):
        return ModelIndexEntry(name, str(version), VersionState.UNAVAILABLE.value, loss)
    return ModelIndexEntry(name, str(version), status.state.value, status.reason)
