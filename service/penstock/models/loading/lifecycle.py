"""`ModelLifecycle`: loads and unloads models, together with the ensembles that use them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from penstock.access.current import current_caller
from penstock.core.access import AuditSink, tell_own
from penstock.core.config import ModelConfig
from penstock.core.errors import InferenceError, InvalidRequestError
from penstock.inflight.inference import RunningRequests
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.dependencies import DependencyGraph
from penstock.models.loading.load_graph import GraphLoad
from penstock.models.loading.read_models import ModelReader, Overrides, Polled, needs
from penstock.models.loading.reservations import Reservations
from penstock.models.loading.retirement import Retirement
from penstock.models.repository.override import ModelOverride, ScratchFolders
from penstock.models.repository.repository import ModelFiles, ModelRepository
from penstock.models.serving.catalog import ModelCatalog
from penstock.models.serving.loaded_model import LoadedModel

_FINALIZE_SECONDS = 10.0
"""Seconds that an unload, or a load with fewer instances, waits for what it has removed."""

_ABORT_SECONDS = 0.5
"""Seconds for models to finalize once the exit is cut off; then their processes are killed."""


class ModelLifecycle:
    """Loads and unloads models. A version keeps serving until its replacement is ready.

    Operations on related models are serialized (M-10 differs: Triton refuses the later one). At
    most `load_threads` versions load at once. `scratch` returns the folder for files that load
    requests carry. Unloads, and loads that remove instances, return once these are finalized, but
    wait no more than `finalize_seconds`. The audit log, if there is one, is told of loads and
    unloads that have a `cause`, why the server does so by itself.
    """

    audit: AuditSink | None = None

    def __init__(
        self,
        repository: ModelRepository,
        builder: VersionBuilder,
        *,
        load_threads: int = 4,
        load_retries: int = 0,
        scratch: Callable[[], Path] | None = None,
        finalize_seconds: float = _FINALIZE_SECONDS,
    ) -> None:
        self._builder = builder
        self.catalog = ModelCatalog()
        self._dependencies = DependencyGraph()
        self._retirement = Retirement(finalize_seconds)
        self._reservations = Reservations()
        self._slots = asyncio.Semaphore(load_threads)
        self._load_retries = load_retries
        self._folders = ScratchFolders(scratch)
        self._reading = ModelReader(repository, self._folders, self.catalog.served)
        self._loads: set[asyncio.Task[dict[str, InferenceError]]] = set()
        self._graphs: set[GraphLoad] = set()

    async def prepare(self, config: ModelConfig) -> None:
        """Make loads of models of the same backend quicker, where there is a way."""
        await self._builder.prepare(config)

    # -- watching -----------------------------------------------------------------------------

    def backends(self) -> Mapping[str, str]:
        """The backends that models have asked for so far: name to file."""
        return self._builder.backends

    @property
    def running(self) -> RunningRequests:
        """The requests in flight by their ids, also of versions that are being unloaded."""
        return self._builder.running

    async def speaks_openai(self, config: ModelConfig) -> bool:
        """Whether a model would answer OpenAI's API, as its configuration tells."""
        return await self._builder.speaks_openai(config)

    def in_flight(self) -> dict[tuple[str, int], int]:
        """The number of requests in flight, by name and version; only of those that have any."""
        counts: dict[tuple[str, int], int] = {}
        for model in self._live():
            if number := model.statistics.in_flight:
                key = model.config.name, model.version
                counts[key] = counts.get(key, 0) + number
        return counts

    def live(self) -> int:
        """The number of model versions that are not unloaded yet."""
        return len(self._live())

    def leaving(self) -> Iterable[LoadedModel]:
        """The model versions that answer the requests that they have, and are unloaded then."""
        return self._retirement.models()

    def loads(self) -> int:
        """The number of load requests in progress."""
        return len(self._loads)

    def dependents(self, name: str) -> set[str]:
        """The ensembles that need a model, as far as they were loaded."""
        return self._dependencies.dependents({name})

    def unneeded(self, name: str) -> set[str]:
        """A model, and those that an unload with `unload_dependents` unloads with it."""
        return self._dependencies.unneeded(name)

    def with_sequences(self) -> set[str]:
        """Models with sequences in progress, and the ensembles that use them."""
        models = self.catalog.models()
        names = {m.config.name for m in models if m.sequences and m.sequences.has_sequences}
        return names | self._dependencies.dependents(names)

    async def wait_for_sequences(self) -> None:
        """Wait until no sequence is in progress (S-22)."""
        sequences = [model.sequences for model in self.catalog.models()]
        await asyncio.gather(*(each.finished() for each in sequences if each is not None))

    # -- changing -----------------------------------------------------------------------------

    async def load(self, name: str, override: ModelOverride | None = None) -> None:
        """Load or reload the versions that the version policy selects; raises when any fails.

        Either all new versions serve, or none does. Models that an ensemble needs are loaded with
        it. Cancelling the caller does not cancel the load.
        """
        for error in (await self.load_all({name: override})).values():
            raise error

    async def load_all(
        self, names: Iterable[str] | Mapping[str, ModelOverride | None], cause: str = ""
    ) -> dict[str, InferenceError]:
        """Load several models, each once and after those it needs; returns errors by model.

        An override replaces the repository's files or configuration of a model.
        """
        overrides = names if isinstance(names, Mapping) else dict.fromkeys(names)
        task = asyncio.get_running_loop().create_task(self._load(overrides, cause))
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)
        return await asyncio.shield(task)

    def cancel_load(self, name: str) -> None:
        """Give up the load of a model that is in progress, which fails; its processes end."""
        for loading in self._graphs:
            loading.cancel(name)

    async def unload(self, name: str, *, unload_dependents: bool = False, cause: str = "") -> None:
        """Refuse new requests at once; those in flight complete after the return (G-13).

        Without any, the model is finalized before the return.

        Ensembles that need the model stop serving; with `unload_dependents` the models that were
        loaded only for this one are unloaded too. Waits for a load in progress; does nothing for a
        model that does not serve.
        """
        names, complete = {name}, False
        while not complete:
            async with self._reservations.reserve(names):
                gone = self._dependencies.unneeded(name) if unload_dependents else {name}
                related = gone | self._dependencies.dependents(gone)
                complete = related <= names
                names |= related
                if complete:
                    served = [one for one in sorted(gone) if self.catalog.served(one)]
                    await self._unload(gone, related - gone)
                    for one in served:
                        self._tell("unload", one, cause)
        await self._retirement.finalized(names)

    async def wait_unloaded(self) -> None:
        """Wait until all unloads in progress are complete."""
        await self._retirement.wait_stopped()

    async def close(self) -> None:
        """Cancel loads; unload every model once its requests in flight are complete."""
        await self._stop_loading()
        for name in self.catalog.names():
            self._retirement.unload(name, self.catalog.versions(name))
        await self.wait_unloaded()
        await self._folders.release()

    async def abort(self) -> None:
        """Cancel requests and release every model; kill the processes that do not end at once."""
        models = [*self._retirement.models(), *self.catalog.models()]
        self._retirement.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(_ABORT_SECONDS):
                await self._stop_loading()
                await asyncio.gather(*(model.abort() for model in models), return_exceptions=True)
                await self._folders.release()

    def _live(self) -> set[LoadedModel]:
        return {*self.catalog.models(), *self._retirement.models()}

    # -- loading ------------------------------------------------------------------------------

    async def _load(self, overrides: Overrides, cause: str) -> dict[str, InferenceError]:
        reserved, failures = set(overrides), None
        unreadable: dict[str, InferenceError] = {}
        while failures is None:
            async with (
                self._reservations.reserve(reserved),
                self._reading.polled(overrides, unreadable) as polled,
            ):
                above = self._dependencies.dependents(polled.keys())
                related = polled.keys() | needs(polled, polled) | above
                if related <= reserved:
                    failures = await self._bring_up(set(overrides), polled, cause)
                reserved |= related
        await self._retirement.finalized(reserved)
        return failures

    async def _bring_up(
        self, names: set[str], polled: Polled, cause: str
    ) -> dict[str, InferenceError]:
        """Load the models that were read; returns the errors of `names`."""
        unread: dict[str, InferenceError] = {}
        for name, files in polled.items():
            if isinstance(files, ModelFiles):
                self._dependencies.add(files, explicit=name in names)
                await self._folders.keep(name, files.folder)
                continue
            self.catalog.forget_failure(name)
            self.catalog.record_failure(name, files.message)
            if name in names:
                unread[name] = files
            else:
                self._dependencies.remove([name])
                await self._folders.release([name])
        changed = polled.keys() - unread.keys()
        loading = self._loading()
        above = self._dependencies.dependents(changed)
        self._graphs.add(loading)
        try:
            await loading.run(self._dependencies.load_order(changed | above))
        finally:
            self._graphs.discard(loading)
        failed = {name: _load_failed(name, f.reason) for name, f in loading.failures.items()}
        for name in sorted(changed | unread.keys()):
            wrong = name in failed or not isinstance(polled.get(name), ModelFiles)
            self._tell("load", name, cause, failed=wrong)
        return unread | {name: error for name, error in failed.items() if name in names}

    def _tell(self, what: str, name: str, cause: str, *, failed: bool = False) -> None:
        if cause:
            tell_own(self.audit, what, name, cause, failed=failed, caller=current_caller())

    def _loading(self) -> GraphLoad:
        return GraphLoad(
            self.catalog,
            self._dependencies,
            self._builder,
            self._retirement,
            self._slots,
            self._load_retries,
        )

    async def _stop_loading(self) -> None:
        for task in self._loads:
            task.cancel()
        if self._loads:
            await asyncio.wait(list(self._loads))

    # -- unloading ----------------------------------------------------------------------------

    async def _unload(self, names: set[str], above: set[str]) -> None:
        """Unload models, and the ensembles `above` that cannot serve without them."""
        self._dependencies.remove(names)
        checks = self._loading()
        for name in self._dependencies.load_order(above):
            checks.check(name)
        for name in names:
            self.catalog.forget_failure(name)
            self._retirement.unload(name, self.catalog.versions(name))
        await self._folders.release(names)


def _load_failed(name: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"load failed for model '{name}': {reason}\n")
