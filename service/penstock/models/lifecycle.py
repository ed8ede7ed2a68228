"""`ModelLifecycle`: in what state each version of each model is, and how it moves on."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Container, Coroutine, Iterator, Mapping
from contextlib import suppress
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

_UNLOADED = "unloaded"
_ABORT_SECONDS = 5.0


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
    State.READY: {State.READY, State.UNLOADING},
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
    """A model that was asked for, its versions, and the tasks that unload some of them."""

    versions: dict[int, VersionStatus] = field(default_factory=dict)
    leaving: dict[int, asyncio.Task[None]] = field(default_factory=dict)

    def ready(self) -> dict[int, Model]:
        return {v: s.model for v, s in self.versions.items() if s.model is not None}

    def latest(self) -> Model | None:
        """The highest version that is ready; asked for every request."""
        latest: Model | None = None
        for status in self.versions.values():
            model = status.model
            if model is not None and (latest is None or model.version > latest.version):
                latest = model
        return latest


@dataclass(slots=True)
class _Attempt:
    """One load of a model, and what became of the versions that it wants."""

    entry: _Entry
    files: ModelFiles
    loaded: dict[int, Model] = field(default_factory=dict)
    failures: dict[int, InferenceError] = field(default_factory=dict)


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
        self._loading: set[asyncio.Task[None]] = set()
        self._retiring: dict[asyncio.Task[None], Model] = {}

    # -- looking up ---------------------------------------------------------------------------

    def find(self, name: str, version: int) -> Model:
        """The model that serves `name`; the highest ready version unless one is named (R-06)."""
        entry = self._entries.get(name)
        if entry is None:
            raise _unknown(NotFoundError, f"'{name}' is not found")
        if version == ANY_VERSION:
            latest = entry.latest()
            if latest is None:
                raise _unknown(NotFoundError, f"'{name}' has no available versions")
            return latest
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

    def busy(self) -> int:
        """How many model versions have requests in flight."""
        models = {*self.models(), *self._retiring.values()}
        return sum(model.statistics.in_flight > 0 for model in models)

    def known(self, name: str) -> bool:
        """Whether the model was ever loaded, or tried."""
        return name in self._entries

    def complete(self) -> bool:
        """Whether every version that was loaded serves; one that was unloaded is no matter (W-03).

        A model that was tried and has no version at all does not serve.
        """
        return all(
            entry.versions
            and all(s.model or s.reason == _UNLOADED for s in entry.versions.values())
            for entry in self._entries.values()
        )

    # -- changing -----------------------------------------------------------------------------

    async def load(self, name: str) -> None:
        """Load, or load anew, the versions that the policy selects; raises when any fails.

        All of them serve, or none of the new ones does. It goes on when the caller leaves.
        """
        task = asyncio.get_running_loop().create_task(self._load(name))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)
        await asyncio.shield(task)

    async def unload(self, name: str) -> None:
        """Refuse new requests at once; those in flight are finished after the return (G-13).

        A model that does not serve is unloaded already; one that is being loaded is waited for.
        """
        entry = self._entries.get(name)
        if entry is None:
            return
        async with self._locks[name]:
            self._retire_all(name, entry)

    async def settled(self) -> None:
        """Wait until every version that is being unloaded is gone."""
        while self._retiring:
            await asyncio.wait(list(self._retiring))

    async def close(self) -> None:
        """Give up loading; unload everything, finishing what is in flight."""
        await self._stop_loading()
        for name, entry in self._entries.items():
            self._retire_all(name, entry)
        await self.settled()

    async def abort(self) -> None:
        """Release everything now, whatever it is doing, within a few seconds."""
        models = [*self._retiring.values(), *self.models()]
        for task in self._retiring:
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(_ABORT_SECONDS):
                await self._stop_loading()
                await asyncio.gather(*(model.abort() for model in models), return_exceptions=True)

    # -- loading ------------------------------------------------------------------------------

    async def _load(self, name: str) -> None:
        async with self._locks[name]:
            files = await asyncio.to_thread(self._repository.read, name)
            entry = self._entries.setdefault(name, _Entry())
            try:
                wanted = list(versions_to_load(files, files.config.version_policy))
            except InferenceError as error:
                raise _load_failed(name, error.message) from error
            attempt = _Attempt(entry, files)
            loads = (self._load_version(attempt, version) for version in wanted)
            try:
                await asyncio.gather(*loads, return_exceptions=True)
                if attempt.failures:
                    raise _load_failed(name, _unavailable(attempt.failures))
            except BaseException:
                self._discard(attempt)
                raise
            self._take_over(attempt)
            self._retire_all(name, entry, keep=wanted)

    async def _load_version(self, attempt: _Attempt, version: int) -> None:
        """Load one version; what serves goes on serving meanwhile."""
        if version in attempt.entry.leaving:
            await asyncio.wait([attempt.entry.leaving[version]])
        status = attempt.entry.versions.setdefault(version, VersionStatus())
        if status.model is None:
            status.move(State.LOADING)
        logger.info("loading: %s:%s", attempt.files.name, version)
        try:
            async with self._slots:
                attempt.loaded[version] = await self._loader.load(attempt.files, version)
        except BaseException as error:  # a backend may raise anything, and a load may be given up
            failure = attempt.failures[version] = as_inference_error(error)
            reason = f"{_word(failure)}: {failure.message}"
            logger.error("failed to load '%s' version %s: %s", attempt.files.name, version, reason)
            if status.model is None:
                status.move(State.UNAVAILABLE, reason)
            if not isinstance(error, Exception):
                raise

    def _take_over(self, attempt: _Attempt) -> None:
        """Let new models serve in place of what served before."""
        for version, model in attempt.loaded.items():
            status = attempt.entry.versions[version]
            former = status.model
            status.move(State.READY, model=model)
            logger.info("successfully loaded '%s'", attempt.files.name)
            if former is not None:
                self._start(former, self._stop(former))

    def _discard(self, attempt: _Attempt) -> None:
        """Give up the new models, since not all of their load were made."""
        for version, model in attempt.loaded.items():
            status = attempt.entry.versions[version]
            if status.model is None:
                status.move(State.UNAVAILABLE, _UNLOADED)
            self._start(model, self._stop(model))

    async def _stop_loading(self) -> None:
        for task in self._loading:
            task.cancel()
        if self._loading:
            await asyncio.wait(list(self._loading))

    # -- unloading ----------------------------------------------------------------------------

    def _retire_all(self, name: str, entry: _Entry, keep: Container[int] = ()) -> None:
        for version, model in entry.ready().items():
            if version not in keep:
                entry.versions[version].move(State.UNLOADING)
                work = self._unload(name, version, entry, model)
                entry.leaving[version] = self._start(model, work)

    async def _unload(self, name: str, version: int, entry: _Entry, model: Model) -> None:
        await self._stop(model)
        entry.versions[version].move(State.UNAVAILABLE, _UNLOADED)
        del entry.leaving[version]
        logger.info("successfully unloaded '%s' version %s", name, version)

    async def _stop(self, model: Model) -> None:
        try:
            await model.stop()
        except Exception:  # a backend may raise anything; the model is gone all the same
            logger.exception("finalizing '%s' failed", model.config.name)

    def _start(self, model: Model, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._retiring[task] = model
        task.add_done_callback(self._retiring.pop)
        return task


def _unknown(cls: type[InferenceError], text: str) -> InferenceError:
    return cls(f"Request for unknown model: {text}")


_WORDS = {
    "INVALID_ARG": "Invalid argument",
    "NOT_FOUND": "Not found",
    "ALREADY_EXISTS": "Already exists",
}


def _word(error: InferenceError) -> str:
    """The name of the error's code as the real server writes it in texts."""
    return _WORDS.get(error.code, error.code.capitalize())


def _load_failed(name: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"load failed for model '{name}': {why}\n")


def _unavailable(failures: Mapping[int, InferenceError]) -> str:
    """Which versions could not be loaded, and why."""
    return "".join(
        f"version {version} is at UNAVAILABLE state: {_word(error)}: {error.message};"
        for version, error in sorted(failures.items())
    )
