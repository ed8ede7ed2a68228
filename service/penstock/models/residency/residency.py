"""`ModelResidency`: every model of the repository can be called, and some of them are loaded."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from penstock.core.errors import (
    ExhaustedError,
    InferenceError,
    UnavailableError,
)
from penstock.core.request import ANY_VERSION
from penstock.metrics.histogram import Histogram
from penstock.models.loading.dependencies import needs_of
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.models.residency.known_model import Kept, KnownModel
from penstock.models.residency.memory import ModelMemory, Resident, victims
from penstock.models.residency.standby import StandbyModel
from penstock.models.serving.catalog import not_found
from penstock.models.serving.loaded_model import LoadedModel
from penstock.models.sizing.budget import MemoryBudget
from penstock.models.sizing.sizes import shown_size

logger = logging.getLogger(__name__)

_BACKOFF_SECONDS = 5.0
"""Seconds for which a load that failed is not tried again by a call."""
_PYTHON = "python"
"""The backend for whose models processes are started before the first call; others take long to
import."""
_LOOK_SECONDS = 0.1
"""Seconds between two looks whether a model has become idle, while a call waits for room."""
_WAITS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@dataclass(slots=True)
class ResidencyCounts:
    """Loads and unloads since the start, by model and cause, and the seconds that calls waited."""

    loads: Counter[tuple[str, str]] = field(default_factory=Counter)
    unloads: Counter[tuple[str, str]] = field(default_factory=Counter)
    waits: Histogram = field(default_factory=lambda: Histogram(_WAITS))


class _UnwantedError(Exception):
    """Nobody waits any more for a model that finds no room."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """A load that failed, and until when it is not tried again (`time.monotonic`)."""

    error: InferenceError
    until: float


class ModelResidency:
    """Loads a model when it is called first; makes room for it in the memory budget.

    Loads that find room go beside each other. Those that do not wait in turn, each until enough
    models are idle that may go: this is decided in one place, so that two of them cannot wait for
    each other. A call waits no longer than `timeout` seconds.
    """

    def __init__(
        self,
        repository: ModelRepository,
        lifecycle: ModelLifecycle,
        budget: MemoryBudget | None = None,
        *,
        timeout: float,
    ) -> None:
        self._repository = repository
        self._lifecycle = lifecycle
        self._memory = ModelMemory(budget)
        self._timeout = timeout
        self._known: dict[str, KnownModel] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._waiting = Counter[str]()
        self._entering = Counter[str]()
        self._failed: dict[str, _Failed] = {}
        self._unreadable: dict[str, InferenceError] = {}
        self._since: dict[str, float] = {}
        self._used: dict[str, tuple[int, float]] = {}
        self._turn = asyncio.Lock()
        self.counts = ResidencyCounts()

    # -- what is known ------------------------------------------------------------------------

    async def learn(self, names: Iterable[str] | None = None) -> None:
        """Read the configurations of all models, or of these; nothing is loaded.

        What cannot be read is refused, with the reason, when it is called.
        """
        read = await asyncio.to_thread(self._read, names)
        for name, found in read.items():
            self.forget(name)
            if isinstance(found, KnownModel):
                self._known[name] = found
            else:
                self._unreadable[name] = found
        for one in self._known.values():
            if one.config.backend == _PYTHON:
                await self._lifecycle.prepare(one.config)
                break

    def forget(self, name: str) -> None:
        """A model has gone from the repository."""
        self._known.pop(name, None)
        self._failed.pop(name, None)
        self._unreadable.pop(name, None)
        self._memory.forget(name)

    def _read(self, names: Iterable[str] | None) -> dict[str, KnownModel | InferenceError]:
        found: dict[str, KnownModel | InferenceError] = {}
        for name in self._repository.names() if names is None else names:
            try:
                found[name] = KnownModel.read(self._repository.described(name))
            except InferenceError as error:
                found[name] = error
        return found

    def known(self, name: str) -> KnownModel | None:
        """A model that a call would load, or has loaded; `None` for any other."""
        found = self._known.get(name)
        return None if found is None or found.kept is Kept.MANUAL else found

    def always(self) -> list[str]:
        """The models that are loaded at the start, and stay."""
        return [name for name, one in self._known.items() if one.kept is Kept.ALWAYS]

    def loadable(self, name: str, version: int) -> bool:
        """Whether a call of a model that is not loaded would load it, as far as is known."""
        found, failed = self.known(name), self._failed.get(name)
        if found is None or not found.serves(version):
            return False
        return failed is None or failed.until <= time.monotonic()

    def why_unloaded(self, name: str) -> str:
        """Why a model is not loaded, as far as this is known here; else empty."""
        if (error := self._unreadable.get(name)) is not None:
            return error.message
        waits = self.known(name) is not None and not self._lifecycle.catalog.served(name)
        return "on demand" if waits else ""

    def standby(self, name: str, version: int) -> StandbyModel | None:
        """A model that is not loaded, for a call of it; `None` for one that no call loads.

        Raises what was wrong with its files, and `NotFoundError` for a version that it has not.
        """
        if (error := self._unreadable.get(name)) is not None:
            raise error
        found = self.known(name)
        if found is None or self._lifecycle.catalog.served(name):
            return None
        _require(found, version)
        return StandbyModel(found.config, partial(self.bring, name, version))

    # -- loading ------------------------------------------------------------------------------

    async def bring(self, name: str, version: int = ANY_VERSION) -> LoadedModel:
        """The model, once it is loaded. Cancelling the caller does not cancel the load.

        Raises what the load failed with, `UnavailableError` after the timeout, `ExhaustedError`
        where there will be no room, and `NotFoundError` for a version that there is not.
        """
        if (found := self.known(name)) is not None:
            _require(found, version)
        begin = time.monotonic()
        self._waiting[name] += 1
        try:
            while not self._lifecycle.catalog.served(name):
                load = self._load(name)
                left = begin + self._timeout - time.monotonic()
                await asyncio.wait([load], timeout=left)  # as callers may be in no task
                if not load.done():
                    raise UnavailableError(
                        f"model '{name}' was not loaded within {self._timeout:g} seconds"
                        f" (--demand-load-timeout-secs); {self._memory.holders()}"
                    )
                if load.cancelled():
                    raise UnavailableError("Server exiting")
                if not isinstance(load.exception(), _UnwantedError):
                    load.result()
                await asyncio.sleep(0)  # until it has been removed
        finally:
            self._waiting[name] -= 1
            self.counts.waits.observe(time.monotonic() - begin)
        return self._lifecycle.catalog.find(name, version)

    def _load(self, name: str) -> asyncio.Task[None]:
        """The load of a model: one for all who wait for it; raises while it is not tried again."""
        task = self._loading.get(name)
        if task is None:
            if (failed := self._failed.get(name)) is not None and time.monotonic() < failed.until:
                raise failed.error
            task = asyncio.get_running_loop().create_task(self._bring(name))
            self._loading[name] = task
            task.add_done_callback(partial(self._loaded, name))
        return task

    def _loaded(self, name: str, task: asyncio.Task[None]) -> None:
        del self._loading[name]
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, InferenceError):
            self._failed[name] = _Failed(error, time.monotonic() + _BACKOFF_SECONDS)
            return
        if error is not None:
            return
        self._failed.pop(name, None)
        self.counts.loads[name, "call"] += 1

    async def _bring(self, name: str) -> None:
        # Where others wait in turn, the room that there is is theirs.
        in_turn = self._turn.locked() or await self._memory.lacking(self._unloaded(name)) > 0
        while not self._succeeded(name, await self._load_in_turn(name, in_turn)):
            in_turn = True

    async def _load_in_turn(self, name: str, in_turn: bool) -> InferenceError | None:
        """Load a model, after making room where it is `in_turn`; the error, if it failed.

        The turn ends with the claim of the memory: a load may take long, or never end.
        """
        if not in_turn:
            return await self._loaded_now(name)
        async with self._turn:
            while missing := await self._memory.lacking(self._unloaded(name)):
                await self._make_room(name, missing)
            load = asyncio.get_running_loop().create_task(self._loaded_now(name))
            while not load.done() and not self._memory.holds(self._unloaded(name)):
                await asyncio.wait([load], timeout=_LOOK_SECONDS)
        return await load

    def _succeeded(self, name: str, error: InferenceError | None) -> bool:
        """Whether a model is loaded; false if it found no room, of which more will be made.

        Raises what the load failed with otherwise: for a call, the model is not available.
        """
        if error is not None and not self._memory.refused(self._group(name)):
            raise UnavailableError(error.message) from error
        return error is None

    def _unloaded(self, name: str) -> dict[str, KnownModel | None]:
        """A model and those that it needs, as far as they are not loaded."""
        group = self._group(name)
        return {n: self._known.get(n) for n in group if not self._lifecycle.catalog.served(n)}

    async def _loaded_now(self, name: str) -> InferenceError | None:
        """Load a model and what it needs; the error, if it could not be."""
        group = self._group(name)
        self._memory.ask_again(group)
        self._entering.update(group)
        try:
            errors = await self._lifecycle.load_all([name])
        finally:
            self._entering.subtract(group)
        now = time.monotonic()
        for one in group:
            loaded = self._lifecycle.catalog.served(one)
            if loaded:
                self._since.setdefault(one, now)
                self._remember(one, loaded)
                self._memory.remember(one)
        return errors.get(name)

    def _remember(self, name: str, loaded: Mapping[int, LoadedModel]) -> None:
        """Keep the configuration as the backend completed it."""
        if (found := self._known.get(name)) is not None:
            self._known[name] = replace(found, config=loaded[max(loaded)].config)

    def _group(self, name: str) -> set[str]:
        """A model and all that it needs."""
        group, todo = set[str](), [name]
        while todo:
            one = todo.pop()
            if one not in group:
                group.add(one)
                found = self._known.get(one)
                todo += [] if found is None else needs_of(found.config)
        return group

    # -- room ---------------------------------------------------------------------------------

    async def _make_room(self, name: str, missing: int) -> None:
        """Unload what is worth least, or wait for a moment; raises where nothing can ever go."""
        group = self._group(name)
        residents = [one for one in self._residents() if not self._group(one.name) & group]
        chosen = victims(residents, missing)
        if not chosen:
            if not self._waiting[name]:
                raise _UnwantedError
            pinned = {one for one, known in self._known.items() if known.kept is not Kept.DEMAND}
            may_go = sum(one.size for one in residents if one.name not in pinned)
            if may_go < missing and not self._leaving():
                raise ExhaustedError(
                    f"model '{name}' finds no room: it lacks {shown_size(missing)} of the"
                    f" --memory-budget, and others that may go hold {shown_size(may_go)};"
                    f" {self._memory.holders()}"
                )
            await asyncio.sleep(_LOOK_SECONDS)
        for one in chosen:
            if not any(map(_busy, self._with_dependents(one))):  # since it was chosen
                await self._let_go(one, "memory")

    def _leaving(self) -> bool:
        """Whether models are being unloaded, or others loaded, which may change what is held."""
        models = sum(1 for _ in self._lifecycle.catalog.models())
        return self._lifecycle.live() > models or self._lifecycle.loads() > 0

    async def _let_go(self, name: str, cause: str) -> None:
        """Unload a model, and before it the ensembles that need it."""
        for one in [*self._lifecycle.dependents(name), name]:
            if self._lifecycle.catalog.served(one):
                logger.info("model '%s' is unloaded: %s", one, _CAUSES[cause])
                self.counts.unloads[one, cause] += 1
                self._since.pop(one, None)
                self._used.pop(one, None)
            await self._lifecycle.unload(one)  # what failed to load is forgotten

    def _residents(self) -> list[Resident]:
        """The models that are loaded, with what is known of each."""
        held = self._memory.held()
        now = time.monotonic()
        found = []
        for name in {model.config.name for model in self._lifecycle.catalog.models()}:
            models = self._with_dependents(name)
            since = self._since.setdefault(name, now)
            idle = now - self._used_at(name, models, now)
            took = max(model.load_seconds for model in models)
            free = self._may_go(name, now - since) and not any(map(_busy, models))
            found.append(Resident(name, held[name], idle, took, free))
        return found

    def _used_at(self, name: str, models: Iterable[LoadedModel], now: float) -> float:
        """When a model was used last; clocks that jump make a difference of a second at most."""
        last = max(model.statistics.last_inference for model in models)
        before, at = self._used.get(name, (None, now))
        if last != before:
            at = now
            self._used[name] = last, at
        return at - min(max(time.time() - last / 1000, 0.0), 1.0)

    def _with_dependents(self, name: str) -> list[LoadedModel]:
        names = [name, *self._lifecycle.dependents(name)]
        return [model for one in names for model in self._lifecycle.catalog.served(one).values()]

    def _may_go(self, name: str, resident_seconds: float) -> bool:
        """Whether a model, and each ensemble that needs it, may be unloaded if it is idle."""
        for one in [name, *self._lifecycle.dependents(name)]:
            known = self._known.get(one)
            if known is None or known.kept is not Kept.DEMAND or self._entering[one]:
                return False
            if resident_seconds < known.min_resident_seconds:
                return False
        return True

    def resident_bytes(self) -> Mapping[str, int]:
        """What each model that is loaded has of the memory budget."""
        return self._memory.held()

    # -- idle models --------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Unload models that were idle for their `penstock.idle_seconds`, while it is open.

        At its end loads that calls have begun are cancelled.
        """
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            ending = [task, *self._loading.values()]
            for one in ending:
                one.cancel()
            await asyncio.wait(ending)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(1)
            try:
                await self.unload_idle()
            except Exception:  # a bug must be logged, and must not end the loop
                logger.exception("unloading idle models failed")

    async def unload_idle(self) -> None:
        """Unload the models that were idle for long enough."""
        for one in self._residents():
            known = self._known.get(one.name)
            limit = 0.0 if known is None else known.idle_seconds
            if one.evictable and 0 < limit <= one.idle_seconds:
                await self._let_go(one.name, "idle")


_CAUSES = {"memory": "another one needs its memory", "idle": "it was idle"}


def _require(model: KnownModel, version: int) -> None:
    """Refuse a version that a load would not bring: others are not to make room for that."""
    if not model.serves(version):
        raise not_found(model.config.name, version)


def _busy(model: LoadedModel) -> bool:
    """Whether requests or sequences keep a model; an ensemble that needs it is asked itself."""
    live = model.sequences is not None and model.sequences.has_sequences
    return bool(model.statistics.in_flight) or live
