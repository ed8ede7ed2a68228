"""`ModelResidency`: every model of the repository can be called, and some of them are loaded."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from penstock.core.errors import (
    InferenceError,
    NoRoomError,
    UnavailableError,
)
from penstock.core.request import ANY_VERSION, RequestScope
from penstock.core.timeline import WAITED_FOR_LOAD as WAITED
from penstock.metrics.histogram import Histogram
from penstock.models.loading.dependencies import needs_of
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.override import ModelOverride
from penstock.models.repository.repository import ModelRepository
from penstock.models.residency.known_model import Kept, KnownModel
from penstock.models.residency.measuring import GpuProcesses, ModelMeter, no_gpus
from penstock.models.residency.memory import ModelMemory, victims
from penstock.models.residency.residents import Residents, is_busy
from penstock.models.residency.rests import Rests
from penstock.models.residency.standby import StandbyModel
from penstock.models.residency.turns import Step, next_step
from penstock.models.residency.waiters import Waiters
from penstock.models.serving.catalog import not_found
from penstock.models.serving.loaded_model import LoadedModel
from penstock.models.sizing.budget import MemoryBudget, Sizes
from penstock.models.sizing.measured import MeasuredSizes

logger = logging.getLogger(__name__)

ON_DEMAND = "on demand"
"""Why a model is not loaded that a call would load."""

_BACKOFF_SECONDS = 5.0
"""Seconds for which a load that failed is not tried again by a call."""
_PREPARED = ("python", "onnxruntime")
"""The backends that are made ready before the first call: of the first a process is started, of the
second its engine is imported. Others take long to import."""
_LOOK_SECONDS = 0.1
"""Seconds between two looks whether a model has become idle, while a call waits for room."""
_WAITS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@dataclass(slots=True)
class ResidencyCounts:
    """Loads and unloads since the start, by model and cause, and the seconds that calls waited.

    `loading` are the seconds that models were loading.
    """

    loading: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
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

    With `sizes`, what loaded models really take is measured, counted and kept there;
    `gpu_processes` tells what processes have of GPUs.
    """

    def __init__(
        self,
        repository: ModelRepository,
        lifecycle: ModelLifecycle,
        budget: MemoryBudget | None = None,
        *,
        timeout: float,
        sizes: MeasuredSizes | None = None,
        gpu_processes: GpuProcesses = no_gpus,
    ) -> None:
        self._repository = repository
        self._lifecycle = lifecycle
        self._memory = ModelMemory(budget)
        self._meter: ModelMeter | None = None
        if budget is not None and sizes is not None:
            self._meter = ModelMeter(self._memory, sizes, gpu_processes)
        self._timeout = timeout
        self._known: dict[str, KnownModel] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._roomless = Counter[str]()
        self._stopping = False
        self._failed: dict[str, _Failed] = {}
        self._unreadable: dict[str, InferenceError] = {}
        self._speaks: dict[str, bool] = {}
        self._turn = asyncio.Lock()
        self.counts = ResidencyCounts()
        self.rests = Rests()
        self._residents = Residents(lifecycle, self._known, self._memory)
        self._waiters = Waiters(self.counts.waits.observe, self._give_up, timeout)

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
        backends = {one.config.backend: one.config for one in self._known.values()}
        for config in filter(None, map(backends.get, _PREPARED)):
            await self._lifecycle.prepare(config)

    def forget(self, name: str) -> None:
        """A model has gone from the repository."""
        self._known.pop(name, None)
        self._failed.pop(name, None)
        self._unreadable.pop(name, None)
        self._speaks.pop(name, None)
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

    async def speaks_openai(self, name: str) -> bool:
        """Whether a model that is not loaded would answer OpenAI's API, as its files tell."""
        found = self.known(name)
        if found is None:
            return False
        if name not in self._speaks:
            self._speaks[name] = await self._lifecycle.speaks_openai(found.config)
        return self._speaks[name]

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
        if state := self.rests.state(name):
            return state
        waits = self.known(name) is not None and not self._lifecycle.catalog.served(name)
        return ON_DEMAND if waits else ""

    def standby(self, name: str, version: int) -> StandbyModel | None:
        """A model that is not loaded, for a call of it; `None` for one that no call loads.

        Raises what was wrong with its files, and `NotFoundError` for a version that it has not.
        """
        if (error := self._unreadable.get(name)) is not None:
            raise error.with_traceback(None)  # else it would keep those of all calls before
        found = self.known(name)
        if found is None or self._lifecycle.catalog.served(name):
            return None
        _require(found, version)
        return StandbyModel(found.config, partial(self._brought, name, version))

    # -- loading ------------------------------------------------------------------------------

    async def _brought(self, name: str, version: int, scope: RequestScope) -> LoadedModel:
        """The model for a request of this scope, whose explanation tells how long it waited."""
        callers = frozenset(call.caller.model for call in scope.call_chain)
        if (timeline := scope.timeline) is None:
            return await self.bring(name, version, callers)
        begin = time.monotonic_ns()
        try:
            return await self.bring(name, version, callers, timeline.trace.text_id)
        finally:
            before = timeline.facts.get(WAITED)
            waited = (time.monotonic_ns() - begin) / 1000
            timeline.facts[WAITED] = waited + (before if isinstance(before, float) else 0.0)

    async def bring(
        self,
        name: str,
        version: int = ANY_VERSION,
        callers: Set[str] = frozenset(),
        trace_id: str = "",
    ) -> LoadedModel:
        """The model, once it is loaded. Cancelling the caller does not cancel the load.

        `callers` are the models that make the call, one for another; `trace_id` is that of W3C, if
        it is traced. Raises what the load failed
        with, `UnavailableError` after the timeout, `NoRoomError` where there will be no room, or
        was none in time, and `NotFoundError` for a version that there is not.
        """
        if (found := self.known(name)) is not None:
            _require(found, version)
        begin = time.monotonic()
        with self._waiters.waits(name, callers, trace_id) as waiter:
            while not self._lifecycle.catalog.served(name):
                load = self._load(name)
                left = begin + self._timeout - time.monotonic()
                ends: list[asyncio.Future[Any]] = [load, waiter.refusal]
                await asyncio.wait(  # as callers may be in no task
                    ends, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if waiter.refusal.done():
                    raise waiter.refusal.result()
                if not load.done():
                    raise self._late(name)
                if load.cancelled():
                    raise self._cancelled(name)
                if not isinstance(load.exception(), _UnwantedError):
                    load.result()
                await asyncio.sleep(0)  # until it has been removed
        return self._lifecycle.catalog.find(name, version)

    def _give_up(self, name: str) -> None:
        """Cancel a load that nobody has waited for as long as a call would have."""
        if name in self._loading:
            logger.warning(
                "the load of model '%s' is cancelled: it has not ended, and nobody has waited for"
                " it for %g seconds",
                *(name, self._timeout),
            )
            self.cancel(name)

    def cancel(self, name: str) -> None:
        """Give up the load of a model that is in progress; calls that wait for it are told."""
        if (load := self._loading.get(name)) is not None:
            load.cancel()
        self._lifecycle.cancel_load(name)

    def stop_loading(self) -> None:
        """Give up all loads that calls have begun: the server exits."""
        self._stopping = True
        for name in [*self._loading]:
            self.cancel(name)

    def _cancelled(self, name: str) -> UnavailableError:
        if self._stopping:
            return UnavailableError("Server exiting")
        return UnavailableError(f"the load of model '{name}' was cancelled")

    def _late(self, name: str) -> InferenceError:
        """The error for a call that has waited for too long."""
        text = (
            f"model '{name}' was not loaded within {self._timeout:g} seconds"
            f" (--demand-load-timeout-secs); {self._memory.holders()}"
        )
        if name in self._roomless:
            return NoRoomError(text, self._residents.retry_after())
        return UnavailableError(text)

    async def load(self, name: str, override: ModelOverride | None = None) -> None:
        """Load or reload a model for a request to do so; others make room as for a call.

        Raises as `ModelLifecycle.load`, and `NoRoomError` where there is no room in time.
        """
        deadline = asyncio.get_running_loop().time() + self._timeout
        with self._waiters.waits(name):
            if await self._memory.lacking(self._unloaded(name)):
                await self._room_until(deadline, name)
            error = await self._loaded_now(name, override, "")
            while error is not None and self._memory.refused(self._group(name)):
                await self._room_until(deadline, name)
                error = await self._loaded_now(name, override, "")
        if error is not None:
            raise error
        self._failed.pop(name, None)
        self.counts.loads[name, "request"] += 1

    async def _room_until(self, deadline: float, name: str) -> None:
        """Make room for a model, also beside itself; raises `NoRoomError` after the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._room_in_turn(name, changed={name})
        except TimeoutError:
            raise NoRoomError(self._late(name).message, self._residents.retry_after()) from None

    def _load(self, name: str) -> asyncio.Task[None]:
        """The load of a model: one for all who wait for it; raises while it is not tried again."""
        task = self._loading.get(name)
        if task is None:
            if (failed := self._failed.get(name)) is not None and time.monotonic() < failed.until:
                raise failed.error.with_traceback(None)
            task = asyncio.get_running_loop().create_task(self._bring(name))
            self._loading[name] = task
            task.add_done_callback(partial(self._loaded, name))
        return task

    def _loaded(self, name: str, task: asyncio.Task[None]) -> None:
        del self._loading[name]
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, NoRoomError):  # there may be some as soon as another one goes
            return
        if isinstance(error, InferenceError):
            self._failed[name] = _Failed(error, time.monotonic() + _BACKOFF_SECONDS)
            return
        if error is not None:
            return
        self._failed.pop(name, None)
        self.counts.loads[name, "call"] += 1

    async def _bring(self, name: str) -> None:
        # Where others wait in turn, the room that there is is theirs.
        in_turn = self._turn.locked() or bool(await self._memory.lacking(self._unloaded(name)))
        while not self._succeeded(name, await self._load_in_turn(name, in_turn)):
            in_turn = True

    async def _load_in_turn(self, name: str, in_turn: bool) -> InferenceError | None:
        """Load a model, after making room where it is `in_turn`; the error, if it failed."""
        if not in_turn:
            return await self._loaded_now(name)
        return await (await self._room_in_turn(name, load=True) or self._loaded_now(name))

    async def _room_in_turn(
        self, name: str, *, changed: Set[str] = frozenset(), load: bool = False
    ) -> asyncio.Task[InferenceError | None] | None:
        """Make room for a model and those it needs, of which the `changed` ones are loaded anew.

        To `load` it, the turn ends with the claim of the memory: a load may take long, or never
        end. Returns its task.
        """
        self._roomless[name] += 1
        try:
            while True:
                async with self._turn:
                    while missing := await self._memory.lacking(self._unloaded(name, changed)):
                        if not await self._make_room(name, missing):
                            break
                    else:
                        return await self._begun(name) if load else None
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._roomless[name] -= 1
            self._roomless += Counter()

    async def _begun(self, name: str) -> asyncio.Task[InferenceError | None]:
        """The load of a model, once it has claimed its memory."""
        load = asyncio.get_running_loop().create_task(self._loaded_now(name))
        while not load.done() and not self._memory.holds(self._unloaded(name)):
            await asyncio.wait([load], timeout=_LOOK_SECONDS)
        return load

    def _succeeded(self, name: str, error: InferenceError | None) -> bool:
        """Whether a model is loaded; false if it found no room, of which more will be made.

        Raises what the load failed with otherwise: for a call, the model is not available.
        """
        if error is not None and not self._memory.refused(self._group(name)):
            raise UnavailableError(error.message) from error
        return error is None

    def _unloaded(self, name: str, changed: Set[str] = frozenset()) -> dict[str, KnownModel | None]:
        """A model and those that it needs, as far as they are not loaded, or `changed`."""
        served = self._lifecycle.catalog.served
        group = self._group(name)
        return {n: self._known.get(n) for n in group if n in changed or not served(n)}

    async def _loaded_now(
        self, name: str, override: ModelOverride | None = None, cause: str = "call"
    ) -> InferenceError | None:
        """Load a model and what it needs; the error, if it could not be.

        Without a `cause` a request asked for it, of which the audit log is told elsewhere.
        """
        group = self._group(name)
        fresh = self._unloaded(name)
        self._memory.ask_again(group)
        self._residents.entering.update(group)
        try:
            errors = await self._lifecycle.load_all({name: override}, cause)
        finally:
            self._residents.entering.subtract(group)
        if name not in errors:
            self._residents.note(name, brought=override is not None and override.brings)
        for one in group:
            loaded = self._lifecycle.catalog.served(one)
            if loaded:
                if one in fresh:
                    self._residents.begin(one)
                    self.counts.loading[one] += max(m.load_seconds for m in loaded.values())
                if one not in self._residents.brought:
                    self._remember(one, loaded)
                if self._meter is not None:
                    for model in loaded.values():
                        await self._meter.measure(model)
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

    async def _make_room(self, name: str, missing: Sizes) -> bool:
        """Unload what is worth least, or wait for a moment; false where others are to go first.

        Raises where nothing can ever go.
        """
        if not self._waiters.of(name):
            raise _UnwantedError
        group = self._group(name)
        residents = [
            one
            for one in self._residents.found()
            if one.leaving or not self._group(one.name) & group
        ]
        stuck = self._waiters.callers(*self._roomless)
        turn = next_step(
            residents,
            missing,
            callers=self._waiters.callers(name),
            stuck=stuck,
            loading=self._lifecycle.loads() > 0,
        )
        if turn.step is Step.NEVER:
            free = sum((Sizes(r.sizes) for r in residents if not r.pinned), Sizes())
            raise self._no_room(name, missing, f"and others that may go hold {self._shown(free)}")
        if turn.step is Step.REFUSE:
            why = "and the models that call it hold the rest, and wait for it"
            self._waiters.refuse_callers(name, self._no_room(name, missing, why))
        for one in turn.models:
            await self._let_go(one, "memory", busy=True)
        if not turn.models:
            await asyncio.sleep(_LOOK_SECONDS)
        return turn.step is not Step.LATER

    def _no_room(self, name: str, missing: Sizes, why: str) -> NoRoomError:
        return NoRoomError(
            f"model '{name}' finds no room: it lacks {self._shown(missing)} of the"
            f" --memory-budget, {why}; {self._memory.holders()}",
            self._residents.retry_after(),
        )

    def _shown(self, sizes: Sizes) -> str:
        return self._memory.shown(sizes)

    async def _let_go(self, name: str, cause: str, *, busy: bool = False) -> None:
        """Unload a model, and before it the ensembles that need it.

        Not one that may not go any more, as it was called while others went.
        """
        for one in [*self._lifecycle.dependents(name), name]:
            if not self._residents.may_go(name, busy=busy):
                return
            if self._lifecycle.catalog.served(one):
                logger.info("model '%s' is unloaded: %s", one, _CAUSES[cause])
                self.counts.unloads[one, cause] += 1
            await self._lifecycle.unload(one, cause=cause)  # what failed to load is forgotten
        self._residents.tidy()

    def resident_seconds(self) -> Mapping[str, float]:
        """Seconds that each model was loaded, since the start."""
        return self._residents.seconds()

    def states(self) -> Mapping[str, str]:
        """The state of each model that is `loaded`, `loading`, `asleep` or `shrunk`."""
        loaded = {model.config.name for model in self._lifecycle.catalog.models()}
        loading = dict.fromkeys(self._loading, "loading")
        rests = self.rests.states()  # until somebody looks, also of those that are gone
        return loading | {name: rests.get(name, "loaded") for name in loaded}

    def resident_bytes(self) -> Mapping[str, Mapping[str, int]]:
        """What each model that is loaded has of the memory budget, by device."""
        return self._memory.by_device()

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
            self.stop_loading()
            task.cancel()
            await asyncio.wait([task, *self._loading.values()])
            if self._meter is not None:
                await self._meter.write()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(1)
            try:
                await self.measure()
                await self.unload_idle()
            except Exception:  # a bug must be logged, and must not end the loop
                logger.exception("looking after idle models failed")

    async def measure(self) -> None:
        """Measure models that were used; others go where they take more than the budget has.

        Where a load is making room just now, it makes that room, too.
        """
        if self._meter is None:
            return
        await self._meter.measure_idle(self._lifecycle.catalog.models())
        if (excess := self._memory.excess()) and not self._turn.locked():
            async with self._turn:
                idle = [one for one in self._residents.found() if one.evictable]
                for one in victims(idle, excess):
                    await self._let_go(one, "memory")

    async def unload_idle(self) -> None:
        """Unload the models that were idle for long enough, or let them rest before."""
        self._residents.tidy()
        self.rests.look(self._lifecycle.catalog.models())
        for one in self._residents.found():
            known = self._known.get(one.name)
            limit = 0.0 if known is None else known.idle_seconds
            if one.evictable and 0 < limit <= one.idle_seconds:
                await self._let_go(one.name, "idle")
            elif known is not None and 0 < known.rest_seconds <= one.idle_seconds:
                await self._rest(known)

    async def _rest(self, known: KnownModel) -> None:
        """Let an idle model rest, and count what it still takes."""
        for model in [*self._lifecycle.catalog.served(known.config.name).values()]:
            rests = known.config.is_ensemble or is_busy(model)
            if not rests and await self.rests.rest(model, known) and self._meter is not None:
                await asyncio.sleep(_LOOK_SECONDS)  # until it has freed what it can
                await self._meter.measure(model)


_CAUSES = {"memory": "another one needs its memory", "idle": "it was idle"}


def _require(model: KnownModel, version: int) -> None:
    """Refuse a version that a load would not bring: others are not to make room for that."""
    if not model.serves(version):
        raise not_found(model.config.name, version)
