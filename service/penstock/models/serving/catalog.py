"""`ModelCatalog`: every model that was ever loaded, or tried, by name and version."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.change_notifier import Changes
from penstock.core.errors import InferenceError, NotFoundError, UnavailableError
from penstock.core.request import ANY_VERSION
from penstock.models.serving.loaded_model import Model
from penstock.models.serving.version_state import Versions, VersionStatus


class ModelCatalog:
    """Finds models; what happens to them is the business of whoever holds their `Versions`."""

    def __init__(self) -> None:
        self._models: dict[str, Versions] = {}
        self.changes = Changes()

    def find(self, name: str, version: int) -> Model:
        """The model that serves `name`; the highest ready version unless one is named (R-06)."""
        versions = self._models.get(name)
        if versions is None:
            raise _unknown(NotFoundError, f"'{name}' is not found")
        if version == ANY_VERSION:
            latest = versions.latest()
            if latest is None:
                raise _unknown(NotFoundError, f"'{name}' has no available versions")
            return latest
        status = versions.statuses.get(version)
        if status is None:
            raise _unknown(NotFoundError, f"'{name}' version {version} is not found")
        if status.model is None:
            raise _unknown(UnavailableError, f"'{name}' version {version} is not at ready state")
        return status.model

    def served(self, name: str) -> dict[int, Model]:
        """The ready versions of a model, lowest first; empty for a model that is not known."""
        versions = self._models.get(name)
        return versions.ready() if versions else {}

    def models(self) -> Iterator[Model]:
        """Every model version that serves, by name and version."""
        for name in sorted(self._models):
            yield from self.served(name).values()

    def statuses(self) -> Iterator[tuple[str, int, VersionStatus]]:
        """Name, version and status of every version known, by name and version."""
        for name, versions in sorted(self._models.items()):
            for version, status in sorted(versions.statuses.items()):
                yield name, version, status

    def known(self, name: str) -> bool:
        """Whether the model was ever loaded, or tried."""
        return name in self._models

    def complete(self) -> bool:
        """Whether every version that was loaded serves; one that was unloaded is no matter."""
        return all(versions.complete() for versions in self._models.values())

    def add(self, name: str) -> Versions:
        """The versions of a model, which is known from now on."""
        return self._models.setdefault(name, Versions(changed=self.changes.notify))

    def versions(self, name: str) -> Versions:
        """The versions of a model; none for one that is not known."""
        return self._models.get(name) or Versions()

    def names(self) -> list[str]:
        """Every model known, in alphabetical order."""
        return sorted(self._models)


def _unknown(cls: type[InferenceError], text: str) -> InferenceError:
    return cls(f"Request for unknown model: {text}")
