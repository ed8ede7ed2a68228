"""`ModelLifecycle`: in what state each version of each model is, and how it moves on."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.core.errors import (
    InferenceError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from penstock.core.relay import as_inference_error
from penstock.core.request import ANY_VERSION
from penstock.models.loader import ModelLoader
from penstock.models.model import Model
from penstock.models.repository import ModelFiles, ModelRepository, versions_to_load

logger = logging.getLogger(__name__)


class State(StrEnum):
    """States of a model version, by the names that clients see (X-16)."""

    UNKNOWN = "UNKNOWN"
    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


_NEXT: dict[State, set[State]] = {
    State.UNKNOWN: {State.LOADING},
    State.LOADING: {State.READY, State.UNAVAILABLE},
    State.READY: {State.LOADING, State.READY, State.UNLOADING},
    State.UNLOADING: {State.UNAVAILABLE},
    State.UNAVAILABLE: {State.LOADING},
}


@dataclass(slots=True)
class VersionStatus:
    """One version: its state, why it is in it, and the model while it serves."""

    state: State = State.UNKNOWN
    reason: str = ""
    model: Model | None = None

    def move(self, to: State, reason: str = "", model: Model | None = None) -> None:
        """Go to the state `to`, serving `model` there."""
        if to not in _NEXT[self.state]:
            raise AssertionError(f"a model version cannot go from {self.state} to {to}")
        self.state, self.reason, self.model = to, reason, model


@dataclass(slots=True)
class _Entry:
    """A model that was asked for, and its versions."""

    versions: dict[int, VersionStatus] = field(default_factory=dict)

    def ready(self) -> dict[int, Model]:
        return {v: s.model for v, s in self.versions.items() if s.model is not None}


class ModelLifecycle:
    """Loads, finds and unloads models. What serves goes on serving until its successor does."""

    def __init__(
        self, repository: ModelRepository, loader: ModelLoader, *, load_threads: int = 4
    ) -> None:
        self._repository = repository
        self._loader = loader
        self._entries: dict[str, _Entry] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._slots = asyncio.Semaphore(load_threads)
        self._retiring: set[asyncio.Task[None]] = set()

    # -- looking up ---------------------------------------------------------------------------

    def find(self, name: str, version: int) -> Model:
        """The model that serves `name`; the highest ready version unless one is named (R-06)."""
        entry = self._entries.get(name)
        if entry is None:
            raise _unknown(NotFoundError, f"'{name}' is not found")
        if version == ANY_VERSION:
            ready = entry.ready()
            if not ready:
                raise _unknown(NotFoundError, f"'{name}' has no available versions")
            return ready[max(ready)]
        status = entry.versions.get(version)
        if status is None:
            raise _unknown(NotFoundError, f"'{name}' version {version} is not found")
        if status.model is None:
            raise _unknown(UnavailableError, f"'{name}' version {version} is not at ready state")
        return status.model

    def served(self, name: str) -> dict[int, Model]:
        """The ready versions of a model, lowest first; empty for a model that is not known."""
        entry = self._entries.get(name)
        return dict(sorted(entry.ready().items())) if entry else {}

    def models(self) -> Iterator[Model]:
        """Every model version that serves, by name and version."""
        for name in sorted(self._entries):
            yield from self.served(name).values()

    def statuses(self) -> Iterator[tuple[str, int, VersionStatus]]:
        """Name, version and status of every version known, by name and version."""
        for name, entry in sorted(self._entries.items()):
            for version, status in sorted(entry.versions.items()):
                yield name, version, status

    def known(self, name: str) -> bool:
        """Whether the model was ever loaded, or tried."""
        return name in self._entries

    # -- changing -----------------------------------------------------------------------------

    async def load(self, name: str) -> None:
        """Load, or load anew, the versions that the policy selects; raises when any fails."""
        async with self._locks[name]:
            files = await asyncio.to_thread(self._repository.read, name)
            entry = self._entries.setdefault(name, _Entry())
            wanted = list(versions_to_load(files, files.config.version_policy))
            errors = await self._load_versions(entry, files, wanted)
            if not errors:
                self._retire_others(name, entry, wanted)
        if errors:
            raise InvalidRequestError(_load_failed(name, errors))

    async def unload(self, name: str) -> None:
        """Refuse new requests at once; returns when those in flight are done (M-07)."""
        entry = self._entries.get(name)
        if entry is None:
            raise NotFoundError("Model to be unloaded has not been served")
        async with self._locks[name]:
            for version in entry.ready():
                self._retire(name, version, entry.versions[version])
        await self.settled()

    async def settled(self) -> None:
        """Wait until every version that is being unloaded is gone."""
        while self._retiring:
            await asyncio.wait(set(self._retiring))

    async def close(self) -> None:
        """Unload everything, finishing what is in flight."""
        for name, entry in self._entries.items():
            for version in entry.ready():
                self._retire(name, version, entry.versions[version])
        await self.settled()

    async def abort(self) -> None:
        """Release everything now; what is in flight fails."""
        for task in self._retiring:
            task.cancel()
        models = [m for entry in self._entries.values() for m in entry.ready().values()]
        await asyncio.gather(*(model.abort() for model in models), return_exceptions=True)

    async def _load_versions(
        self, entry: _Entry, files: ModelFiles, wanted: list[int]
    ) -> dict[int, InferenceError]:
        results = await asyncio.gather(*(self._load_version(entry, files, v) for v in wanted))
        return {v: error for v, error in zip(wanted, results, strict=True) if error is not None}

    async def _load_version(
        self, entry: _Entry, files: ModelFiles, version: int
    ) -> InferenceError | None:
        """Load one version, and let it take over from what served before."""
        status = entry.versions.setdefault(version, VersionStatus())
        former = status.model
        status.move(State.LOADING, model=former)
        logger.info("loading: %s:%s", files.name, version)
        try:
            async with self._slots:
                model = await self._loader.load(files, version)
        except Exception as error:  # a backend may raise anything
            return self._failed_to_load(status, files.name, version, error)
        status.move(State.READY, model=model)
        logger.info("successfully loaded '%s'", files.name)
        if former is not None:
            self._start(self._stop(former))
        return None

    def _failed_to_load(
        self, status: VersionStatus, name: str, version: int, error: Exception
    ) -> InferenceError:
        failure = as_inference_error(error)
        reason = f"{_word(failure)}: {failure.message}"
        logger.error("failed to load '%s' version %s: %s", name, version, reason)
        if status.model is None:
            status.move(State.UNAVAILABLE, reason)
        else:
            status.move(State.READY, reason, status.model)
        return failure

    def _retire_others(self, name: str, entry: _Entry, wanted: list[int]) -> None:
        for version in entry.ready():
            if version not in wanted:
                self._retire(name, version, entry.versions[version])

    def _retire(self, name: str, version: int, status: VersionStatus) -> None:
        model = status.model
        assert model is not None
        status.move(State.UNLOADING)
        self._start(self._unload(name, version, status, model))

    async def _unload(self, name: str, version: int, status: VersionStatus, model: Model) -> None:
        await self._stop(model)
        status.move(State.UNAVAILABLE, "unloaded")
        logger.info("successfully unloaded '%s' version %s", name, version)

    async def _stop(self, model: Model) -> None:
        try:
            await model.stop()
        except Exception:  # a backend may raise anything; the model is gone all the same
            logger.exception("finalizing '%s' failed", model.config.name)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)


def _unknown(cls: type[InferenceError], text: str) -> InferenceError:
    return cls(f"Request for unknown model: {text}")


_WORDS = {"INVALID_ARG": "Invalid argument", "NOT_FOUND": "Not found", "ALREADY_EXISTS": "Already exists"}


def _word(error: InferenceError) -> str:
    """The name of the error's code as the real server writes it in texts."""
    return _WORDS.get(error.code, error.code.capitalize())


def _load_failed(name: str, errors: dict[int, InferenceError]) -> str:
    versions = "".join(
        f"version {version} is at UNAVAILABLE state: {_word(error)}: {error.message};"
        for version, error in sorted(errors.items())
    )
    return f"load failed for model '{name}': {versions}\n"
