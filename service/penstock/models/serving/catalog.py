"""`ModelCatalog`: every model ever loaded or attempted, with the state of each version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.core.change_notifier import ChangeNotifier
from penstock.core.errors import (
    InferenceError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from penstock.core.full_names import ambiguous_name, split_name
from penstock.core.request import ANY_VERSION
from penstock.models.serving.loaded_model import LoadedModel

UNLOADED = "unloaded"
"""The reason of a version that was unloaded, which is not a failure."""


class VersionState(StrEnum):
    """States of a model version, by the protocol's names (X-16)."""

    UNKNOWN = "UNKNOWN"
    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


_NEXT: dict[VersionState, set[VersionState]] = {
    VersionState.UNKNOWN: {VersionState.LOADING},
    VersionState.LOADING: {VersionState.READY, VersionState.UNAVAILABLE},
    VersionState.READY: {VersionState.READY, VersionState.UNLOADING},
    VersionState.UNLOADING: {VersionState.UNAVAILABLE},
    VersionState.UNAVAILABLE: {VersionState.LOADING},
}


def _ignore() -> None:
    """The callback of a catalog that no one observes."""


@dataclass(slots=True)
class VersionStatus:
    """The state of a version, the reason for it, and the model while it serves.

    The reason of a version that serves is that of its last reload, if it failed. `changed` is
    called after every transition.
    """

    state: VersionState = VersionState.UNKNOWN
    reason: str = ""
    model: LoadedModel | None = None
    changed: Callable[[], None] = _ignore

    def move(self, to: VersionState, reason: str = "", model: LoadedModel | None = None) -> None:
        """Change to the state `to`, serving `model` there."""
        if to not in _NEXT[self.state]:
            raise AssertionError(f"a model version cannot go from {self.state} to {to}")
        self.state, self.reason, self.model = to, reason, model
        self.changed()

    def reload_failed(self, reason: str) -> None:
        """Record why a reload failed, after which the version serves on."""
        self.reason = failed_reload(reason)


def failed_reload(reason: str) -> str:
    """The reason of a version that serves on after a reload failed."""
    return f"reload failed: {reason}"


@dataclass(slots=True)
class Versions:
    """The versions of one model, the tasks that unload some, and the latest one that serves."""

    statuses: dict[int, VersionStatus] = field(default_factory=dict)
    leaving: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    changed: Callable[[], None] = _ignore
    latest: LoadedModel | None = None

    def status(self, version: int) -> VersionStatus:
        """The status of a version, which is in the catalog from now on."""
        return self.statuses.setdefault(version, VersionStatus(changed=self._moved))

    def ready(self) -> dict[int, LoadedModel]:
        """The models of the versions that serve, lowest first."""
        return {v: s.model for v, s in sorted(self.statuses.items()) if s.model is not None}

    def _moved(self) -> None:
        self.latest = next(reversed(self.ready().values()), None)
        self.changed()

    def complete(self) -> bool:
        """Whether every version serves or was unloaded; false for a model without any (W-03)."""
        return bool(self.statuses) and all(
            s.model is not None or s.reason == UNLOADED for s in self.statuses.values()
        )


class ModelCatalog:
    """Looks up models by name and version; loads and unloads change their `Versions`.

    `changes` notifies of every change of state.
    """

    def __init__(self) -> None:
        self._models: dict[str, Versions] = {}
        self._failures: dict[str, str] = {}
        self._full_names: dict[str, list[str]] = {}
        self.changes = ChangeNotifier()

    @property
    def failures(self) -> Mapping[str, str]:
        """The reasons of the last loads that failed, by model."""
        return self._failures

    def find(self, name: str, version: int) -> LoadedModel:
        """The model that serves a version; the highest ready one for `ANY_VERSION` (R-06)."""
        versions = self._models.get(name)
        if versions is None:
            raise self._not_found(name)
        if version == ANY_VERSION:
            if versions.latest is None:
                raise _unknown(NotFoundError, f"'{name}' has no available versions")
            return versions.latest
        status = versions.statuses.get(version)
        if status is None:
            raise not_found(name, version)
        if status.model is None:
            raise _unknown(UnavailableError, f"'{name}' version {version} is not at ready state")
        return status.model

    def served(self, name: str) -> dict[int, LoadedModel]:
        """The ready versions of a model, lowest first; empty for an unknown model."""
        versions = self._models.get(name)
        return versions.ready() if versions else {}

    def readers_of(self, name: str) -> frozenset[str]:
        """The models whose processes read the inputs of a request to this one; none if unknown.

        These are the model, and those within an ensemble, which are served wherever it is.
        """
        readers, found = {name}, list(self.served(name).values())
        for model in found:
            if (ensemble := model.config.ensemble_scheduling) is not None:
                new = {step.model for step in ensemble.step} - readers
                readers |= new
                found += [one for each in new for one in self.served(each).values()]
        return frozenset(readers) if found else frozenset()

    def models(self) -> Iterator[LoadedModel]:
        """Every model version that serves, by name and version."""
        for name in sorted(self._models):
            yield from self.served(name).values()

    def statuses(self) -> Iterator[tuple[str, int, VersionStatus]]:
        """Name, version and status of every version in the catalog, in order."""
        for name, versions in sorted(self._models.items()):
            for version, status in sorted(versions.statuses.items()):
                yield name, version, status

    def complete(self) -> bool:
        """Whether every version that was loaded serves, except those unloaded since (W-03)."""
        return all(versions.complete() for versions in self._models.values())

    def add(self, name: str) -> Versions:
        """The versions of a model, which is added to the catalog."""
        namespace, short = split_name(name)
        if namespace and name not in self._models:
            self._full_names.setdefault(short, []).append(name)
        return self._models.setdefault(name, Versions(changed=self.changes.notify))

    def full_names(self, name: str) -> list[str]:
        """The full names of the models of a name that several repositories have; else the name."""
        return [*self._full_names.get(name, ())] or [name]

    def _not_found(self, name: str) -> InferenceError:
        if len(found := self._full_names.get(name, ())) > 1:
            return InvalidRequestError(ambiguous_name(name, len(found)))
        return not_found(name)

    def record_failure(self, name: str, reason: str) -> None:
        """Record why the last load of a model failed."""
        self._failures[name] = reason

    def forget_failure(self, name: str) -> None:
        """Remove the reason of the last load of a model, if it failed."""
        self._failures.pop(name, None)
        for status in self.versions(name).statuses.values():
            if status.model is not None:
                status.reason = ""

    def versions(self, name: str) -> Versions:
        """The versions of a model; empty for an unknown one."""
        return self._models.get(name) or Versions()

    def names(self) -> list[str]:
        """Every model in the catalog, in alphabetical order."""
        return sorted(self._models)


def not_found(name: str, version: int = ANY_VERSION) -> InferenceError:
    """The error for a name that no model has, or for a version that a model has not."""
    which = f"'{name}'" if version == ANY_VERSION else f"'{name}' version {version}"
    return _unknown(NotFoundError, f"{which} is not found")


def _unknown(cls: type[InferenceError], text: str) -> InferenceError:
    return cls(f"Request for unknown model: {text}")
