"""`GraphLoad`: loads models in the order of their dependencies, each by one `ModelLoad`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence, Set
from functools import partial

from penstock.core.errors import ConfigError, InferenceError, UnavailableError, as_inference_error
from penstock.core.request import ANY_VERSION
from penstock.models.config.validation.composition import composed
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.dependencies import DependencyGraph, Failure, Node
from penstock.models.loading.redaction import redacted
from penstock.models.loading.resizing import Resizing
from penstock.models.loading.retirement import Retirement
from penstock.models.repository.repository import ModelFiles, versions_to_load
from penstock.models.serving.catalog import UNLOADED, ModelCatalog, Versions, VersionState
from penstock.models.serving.loaded_model import LoadedModel

logger = logging.getLogger(__name__)

BuildVersion = Callable[[ModelFiles, int], Awaitable[LoadedModel | Resizing]]


class _UnwantedError(UnavailableError):
    """A load was given up."""

    def __init__(self) -> None:
        super().__init__("the load was cancelled")


class ModelLoad:
    """One load of a model: builds its versions, then replaces those that serve, all or none."""

    def __init__(self, files: ModelFiles, versions: Versions, retirement: Retirement) -> None:
        self._files = files
        self._versions = versions
        self._retirement = retirement
        self._loaded: dict[int, LoadedModel | Resizing] = {}
        self._failures: dict[int, InferenceError] = {}

    async def run(
        self, wanted: Sequence[int], build: BuildVersion, kept: Collection[int] = ()
    ) -> str:
        """Load the versions `wanted` and unload all others; returns the reason if any failed.

        Versions in `kept` serve already and are left as they are.
        """
        try:
            loads = (self._load(version, build) for version in wanted if version not in kept)
            await asyncio.gather(*loads, return_exceptions=True)
        except BaseException:
            self._discard()
            raise
        if self._failures:
            self._discard()
            return unavailable(self._failures)
        self._commit()
        self._retirement.unload(self._files.name, self._versions, keep=wanted)
        return ""

    async def _load(self, version: int, build: BuildVersion) -> None:
        """Build one version while its predecessor, if any, serves."""
        if version in self._versions.leaving:
            await asyncio.wait([self._versions.leaving[version]])
        status = self._versions.status(version)
        if status.model is None:
            status.move(VersionState.LOADING)
        logger.info("loading: %s:%s", self._files.name, version)
        begun = time.monotonic()
        try:
            loaded = self._loaded[version] = await build(self._files, version)
            if isinstance(loaded, LoadedModel):
                loaded.load_seconds = time.monotonic() - begun
        except BaseException as error:  # a backend may raise anything; a load may be cancelled
            whole = as_inference_error(error)
            failure = self._failures[version] = redacted(whole)
            reason, text = _reason(failure), _reason(whole)
            known = isinstance(error, (InferenceError, asyncio.CancelledError))
            told = "failed to load '%s' version %s: %s"
            name, slip = self._files.name, None if known else error
            logger.error(told, name, version, text, exc_info=slip)
            if isinstance(error, _UnwantedError):
                reason = UNLOADED
            if status.model is None:
                status.move(VersionState.UNAVAILABLE, reason)
            else:
                status.reload_failed(reason)
            if not isinstance(error, Exception):
                raise

    def _commit(self) -> None:
        """Replace the models that serve by the new ones."""
        for version, loaded in self._loaded.items():
            status = self._versions.statuses[version]
            if resized := isinstance(loaded, Resizing):
                model, former = loaded.model, loaded.commit()
            else:
                model, former = loaded, status.model
            status.move(VersionState.READY, model=model)
            logger.info("successfully loaded '%s'", self._files.name)
            if former is not None:
                self._retirement.retire(former, awaited=resized)

    def _discard(self) -> None:
        """Discard the new models, since another version failed."""
        for version, loaded in self._loaded.items():
            status = self._versions.statuses[version]
            if status.model is None:
                status.move(VersionState.UNAVAILABLE, UNLOADED)
            model = loaded.discard() if isinstance(loaded, Resizing) else loaded
            if model is not None:
                self._retirement.retire(model)


_CODE_NAMES = {
    "INVALID_ARG": "Invalid argument",
    "NOT_FOUND": "Not found",
    "ALREADY_EXISTS": "Already exists",
}


def code_name(error: InferenceError) -> str:
    """The name of the error's code as Triton writes it in messages."""
    return _CODE_NAMES.get(error.code, error.code.capitalize())


def _reason(error: InferenceError) -> str:
    """Why a version could not be loaded."""
    return f"{code_name(error)}: {error.message}"


def unavailable(failures: dict[int, InferenceError]) -> str:
    """The versions that failed to load, and why, as one message."""
    return "".join(
        f"version {version} is at UNAVAILABLE state: {_reason(error)};"
        for version, error in sorted(failures.items())
    )


class GraphLoad:
    """One load of a dependency graph: requested models, those they need, ensembles that use them.

    Models load concurrently; an ensemble waits only for the models of its steps. A failing backend
    is retried `retries` times. Models whose files have not changed are left as they are.
    """

    def __init__(
        self,
        catalog: ModelCatalog,
        dependencies: DependencyGraph,
        builder: VersionBuilder,
        retirement: Retirement,
        slots: asyncio.Semaphore,
        retries: int = 0,
    ) -> None:
        self._catalog = catalog
        self._dependencies = dependencies
        self._builder = builder
        self._retirement = retirement
        self._slots = slots
        self._retries = retries
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reloaded: set[str] = set()
        self._building: dict[asyncio.Task[LoadedModel | Resizing], str] = {}
        self._unwanted: set[str] = set()
        self.failures: dict[str, Failure] = {}

    async def run(self, names: Iterable[str]) -> None:
        """Load models, given in `DependencyGraph.load_order`; fills `failures`."""
        for name in names:
            needed = [self._tasks[n] for n in self._dependencies[name].needs if n in self._tasks]
            work = self._bring_up(name, needed)
            self._tasks[name] = asyncio.get_running_loop().create_task(work)
        await asyncio.gather(*self._tasks.values())

    def cancel(self, name: str) -> None:
        """Give up what is being loaded of a model and of those it needs; they fail to load."""
        names = {name, *(self._dependencies[name].needs if name in self._tasks else ())}
        self._unwanted |= names
        for task, model in self._building.items():
            if model in names:
                task.cancel()

    def check(self, name: str) -> bool:
        """Whether an ensemble can serve with the models loaded; unloads one that cannot."""
        needs = self._dependencies[name].needs
        ready = {need: self._catalog.served(need).keys() for need in needs}
        problem = (
            self._dependencies.defect(name)
            or self._dependencies.unmet(name, ready, self.failures)
            or self._mismatch(name)
        )
        if problem:
            logger.error("Invalid argument: %s", problem)
            self._fail(name, Failure(problem, invalid=True))
            self._retirement.unload(name, self._catalog.versions(name))
        return not problem

    async def _bring_up(self, name: str, needed: Sequence[asyncio.Task[None]]) -> None:
        if needed:
            await asyncio.wait(needed)
        if self._dependencies[name].needs and not self.check(name):
            return
        if reason := await self._load_model(name):
            self._fail(name, Failure(reason))
        else:
            self._catalog.forget_failure(name)

    def _fail(self, name: str, failure: Failure) -> None:
        self.failures[name] = failure
        self._catalog.record_failure(name, failure.reason)

    async def _load_model(self, name: str) -> str:
        """Load one model; returns the reason if it failed."""
        node = self._dependencies[name]
        versions = self._catalog.add(name)
        try:
            wanted = versions_to_load(node.files, node.files.config.version_policy)
        except InferenceError as missing:
            error = await self._builder.refusal(node.files) or missing
            logger.error("failed to load model '%s': %s", name, error)
            return error.message
        kept = await self._unchanged(node, wanted.keys())
        if kept == wanted.keys() == versions.ready().keys():
            return ""
        self._reloaded.add(name)
        load = ModelLoad(node.files, versions, self._retirement)
        build = await self._build_of(node.files)
        reason = await load.run(list(wanted), build, kept)
        if reason and node.needs:  # the version that serves may use models being unloaded
            self._retirement.unload(name, versions)
        return reason

    async def _build_of(self, files: ModelFiles) -> BuildVersion:
        """What builds versions, or refuses all where files are not the pinned or signed ones."""
        if not self._builder.must_check(files):
            return self._build
        try:
            async with self._slots:
                await self._builder.check_files(files)
        except InferenceError as error:
            return partial(_refused, error)
        return self._build

    async def _unchanged(self, node: Node, wanted: Set[int]) -> set[int]:
        """The versions that serve and whose files and configuration have not changed."""
        if not self._reloaded.isdisjoint(node.needs):
            return set()
        files, kept = node.files, set()
        for version, model in self._catalog.served(files.name).items():
            if version in wanted and await self._builder.is_unchanged(model, files, version):
                logger.info("'%s' version %s has not changed", files.name, version)
                kept.add(version)
        return kept

    def _mismatch(self, name: str) -> str:
        """Why the tensors of an ensemble's models do not match; empty when they do."""
        node = self._dependencies[name]
        models = {need: self._catalog.find(need, ANY_VERSION) for need in node.needs}
        completed = {need for need, model in models.items() if _batch_size_is_completed(model)}
        try:
            composed(node.files.config, {n: m.config for n, m in models.items()}, completed)
        except ConfigError as error:
            return error.message
        return ""

    async def _build(self, files: ModelFiles, version: int) -> LoadedModel | Resizing:
        """Build one version, in a task that `cancel` ends."""
        name = files.name
        if name in self._unwanted:
            raise _UnwantedError
        task = asyncio.get_running_loop().create_task(self._build_now(files, version))
        self._building[task] = name
        task.add_done_callback(self._building.pop)
        try:
            return await task
        except asyncio.CancelledError:
            if name not in self._unwanted:
                raise
            raise _UnwantedError from None

    async def _build_now(self, files: ModelFiles, version: int) -> LoadedModel | Resizing:
        if files.config.is_ensemble:
            return await self._builder.build_ensemble(files, version, self._catalog.find)
        async with self._slots:
            former = self._catalog.served(files.name).get(version)
            if former is not None and (
                resizing := await self._builder.prepare_resize(former, files, version)
            ):
                return resizing
            return await self._build_with_retries(files, version)

    async def _build_with_retries(self, files: ModelFiles, version: int) -> LoadedModel:
        """Build one version; errors in the configuration are not retried (M-12)."""
        left = self._retries
        while True:
            try:
                return await self._builder.build(files, version)
            except ConfigError:
                raise
            except Exception as error:  # a backend may raise anything
                if not left:
                    raise
                left -= 1
                logger.warning(
                    "loading '%s' version %s failed and is retried: %s", files.name, version, error
                )


async def _refused(error: InferenceError, files: ModelFiles, version: int) -> LoadedModel:
    raise error


def _batch_size_is_completed(model: LoadedModel) -> bool:
    """Whether the backend gave the model its batch size, since its configuration does not."""
    return model.origin is not None and model.origin.config.max_batch_size == 0
