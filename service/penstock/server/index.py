"""The index of the model repository: which models are there, and what became of their versions."""

from __future__ import annotations

from collections.abc import Iterable, Set

from penstock.models.serving.version_state import State, VersionStatus
from penstock.server.answers import ModelIndexEntry

_TWICE = "model appears in two or more repositories"


def model_index(
    names: Set[str], twice: Set[str], statuses: Iterable[tuple[str, int, VersionStatus]]
) -> list[ModelIndexEntry]:
    """The lines of every version that was loaded or tried, sorted by the names of models.

    `names` are the models of the repositories, `twice` those of them that are there twice. As the
    real server has it, what is served from other files is not in the index.
    """
    entries = [_entry(*known) for known in statuses if known[0] in names - twice]
    entries += [ModelIndexEntry(n, "", State.UNAVAILABLE.value, _TWICE) for n in twice]
    return sorted(entries, key=lambda entry: entry.name)


def _entry(name: str, version: int, status: VersionStatus) -> ModelIndexEntry:
    """The line of a version: one whose processes stay down is not ready, whatever was loaded."""
    if status.model is not None and (loss := status.model.loss):
        return ModelIndexEntry(name, str(version), State.UNAVAILABLE.value, loss)
    return ModelIndexEntry(name, str(version), status.state.value, status.reason)
