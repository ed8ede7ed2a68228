"""What the facade answers about the server and its model repository, as frozen values."""

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
"""What clients and tools detect features by, in the order they expect (contract G-05)."""


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    """Name, version and protocol extensions of the server (G-04)."""

    name: str
    version: str
    extensions: tuple[str, ...] = EXTENSIONS


@dataclass(frozen=True, slots=True)
class ModelIndexEntry:
    """One line of the repository index (X-16); empty version and state: never loaded."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


def model_index(
    names: Set[str], twice: Set[str], statuses: Iterable[tuple[str, int, VersionStatus]]
) -> list[ModelIndexEntry]:
    """The lines of every version that was loaded or tried, sorted by the names of models.

    `names` are the models of the repositories, `twice` those of them that are there twice. As the
    real server has it, what is served from other files is not in the index.
    """
    entries = [_entry(*known) for known in statuses if known[0] in names - twice]
    entries += [ModelIndexEntry(n, "", VersionState.UNAVAILABLE.value, _TWICE) for n in twice]
    return sorted(entries, key=lambda entry: entry.name)


def _entry(name: str, version: int, status: VersionStatus) -> ModelIndexEntry:
    """The line of a version: one whose processes stay down is not ready, whatever was loaded."""
    if status.model is not None and (loss := status.model.loss):
        return ModelIndexEntry(name, str(version), VersionState.UNAVAILABLE.value, loss)
    return ModelIndexEntry(name, str(version), status.state.value, status.reason)
