"""Loads models together with those that they need: the load graph, and one load attempt each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence, Set

from penstock.core.errors import ConfigError, InferenceError, as_inference_error
from penstock.core.request import ANY_VERSION
from penstock.models.config.validation.composition import composed
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.dependencies import Dependencies, Failure, Node
from penstock.models.loading.resizing import Resizing
from penstock.models.loading.retirement import Retirement
from penstock.models.repository.repository import ModelFiles, versions_to_load
from penstock.models.serving.catalog import UNLOADED, ModelCatalog, Versions, VersionState
from penstock.models.serving.loaded_model import LoadedModel

logger = logging.getLogger(__name__)

MakeModel = Callable[[ModelFiles, int], Awaitable[LoadedModel | Resizing]]


class ModelLoad:
    """Loads versions of a model beside those that serve. All of them take over, or none does."""

    def __init__(self, files: ModelFiles, versions: Versions, retirement: Retirement) -> None:
        self._files = files
        self._versions = versions
        self._retirement = retirement
        self._loaded: dict[int, LoadedModel | Resizing] = {}
        self._failures: dict[int, InferenceError] = {}

    async def run(self, wanted: Sequence[int], make: MakeModel, kept: Collection[int] = ()) -> str:
        """Load the versions `wanted`, which serve afterwards, alone; answers why not all could.

        Those to be `kept` serve already, and go on as they are.
        """
        try:
            loads = (self._load(version, make) for version in wanted if version not in kept)
            await asyncio.gather(*loads, return_exceptions=True)
        except BaseException:
            self._discard()
            raise
        if self._failures:
            self._discard()
            return unavailable(self._failures)
        self._take_over()
        self._retirement.unload(self._files.name, self._versions, keep=wanted)
        return ""

    async def _load(self, version: int, make: MakeModel) -> None:
        """Load one version; what serves goes on serving meanwhile."""
        if version in self._versions.leaving:
            await asyncio.wait([self._versions.leaving[version]])
        status = self._versions.status(version)
        if status.model is None:
            status.move(VersionState.LOADING)
        logger.info("loading: %s:%s", self._files.name, version)
        begun = time.monotonic()
        try:
            loaded = self._loaded[version] = await make(self._files, version)
            if isinstance(loaded, LoadedModel):
                loaded.load_seconds = time.monotonic() - begun
        except BaseException as error:  # a backend may raise anything, and a load may be given up
            failure = self._failures[version] = as_inference_error(error)
            reason = f"{word(failure)}: {failure.message}"
            logger.error("failed to load '%s' version %s: %s", self._files.name, version, reason)
            if status.model is None:
                status.move(VersionState.UNAVAILABLE, reason)
            if not isinstance(error, Exception):
                raise

    def _take_over(self) -> None:
        """Let new models serve in place of what served before."""
        for version, loaded in self._loaded.items():
            status = self._versions.statuses[version]
            if isinstance(loaded, Resizing):
                model, former = loaded.model, loaded.commit()
            else:
                model, former = loaded, status.model
            status.move(VersionState.READY, model=model)
            logger.info("successfully loaded '%s'", self._files.name)
            if former is not None:
                self._retirement.retire(former)

    def _discard(self) -> None:
        """Give up the new models, since not all of their load were made."""
        for version, loaded in self._loaded.items():
            status = self._versions.statuses[version]
            if status.model is None:
                status.move(VersionState.UNAVAILABLE, UNLOADED)
            model = loaded.discard() if isinstance(loaded, Resizing) else loaded
            if model is not None:
                self._retirement.retire(model)


_WORDS = {
    "INVALID_ARG": "Invalid argument",
    "NOT_FOUND": "Not found",
    "ALREADY_EXISTS": "Already exists",
}


def word(error: InferenceError) -> str:
    """The name of the error's code as the real server writes it in texts."""
    return _WORDS.get(error.code, error.code.capitalize())


def unavailable(failures: dict[int, InferenceError]) -> str:
    """Which versions could not be loaded, and why."""
    return "".join(
        f"version {version} is at UNAVAILABLE state: {word(error)}: {error.message};"
        for version, error in sorted(failures.items())
    )


class GraphLoad:
    """One load: of models that were asked for, what they need, and the ensembles above them.

    Models load side by side; an ensemble waits for its own parts only. Each is tried once,
    and `retries` times more when its backend fails. What serves already as its files say is
    left alone.
    """

    def __init__(
        self,
        catalog: ModelCatalog,
        dependencies: Dependencies,
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
        self._renewed: set[str] = set()
        self.failures: dict[str, Failure] = {}

    async def run(self, names: Iterable[str]) -> None:
        """Load models whose order is that of `Dependencies.ordered`; `failures` tells the rest."""
        for name in names:
            needed = [self._tasks[n] for n in self._dependencies[name].needs if n in self._tasks]
            work = self._bring_up(name, needed)
            self._tasks[name] = asyncio.get_running_loop().create_task(work)
        await asyncio.gather(*self._tasks.values())

    def check(self, name: str) -> bool:
        """Whether an ensemble can serve with what is loaded; one that cannot does not any more."""
        needs = self._dependencies[name].needs
        ready = {need: self._catalog.served(need).keys() for need in needs}
        problem = (
            self._dependencies.defect(name)
            or self._dependencies.unmet(name, ready, self.failures)
            or self._misfit(name)
        )
        if problem:
            logger.error("Invalid argument: %s", problem)
            self.failures[name] = Failure(problem, invalid=True)
            self._retirement.unload(name, self._catalog.versions(name))
        return not problem

    async def _bring_up(self, name: str, needed: Sequence[asyncio.Task[None]]) -> None:
        if needed:
            await asyncio.wait(needed)
        if (not self._dependencies[name].needs or self.check(name)) and (
            reason := await self._try(name)
        ):
            self.failures[name] = Failure(reason)

    async def _try(self, name: str) -> str:
        """Load one model; answers why it could not be."""
        node = self._dependencies[name]
        versions = self._catalog.add(name)
        try:
            wanted = versions_to_load(node.files, node.files.config.version_policy)
        except InferenceError as error:
            logger.error("failed to load model '%s': %s", name, error)
            return error.message
        kept = await self._unchanged(node, wanted.keys())
        if kept == wanted.keys() == versions.ready().keys():
            return ""
        self._renewed.add(name)
        attempt = ModelLoad(node.files, versions, self._retirement)
        reason = await attempt.run(list(wanted), self._make, kept)
        if reason and node.needs:  # what served is made of parts that may be on their way out
            self._retirement.unload(name, versions)
        return reason

    async def _unchanged(self, node: Node, wanted: Set[int]) -> set[int]:
        """The versions that serve and would be no other if they were loaded once more."""
        if not self._renewed.isdisjoint(node.needs):
            return set()
        files, kept = node.files, set()
        for version, model in self._catalog.served(files.name).items():
            if version in wanted and await self._builder.is_unchanged(model, files, version):
                logger.info("'%s' version %s has not changed", files.name, version)
                kept.add(version)
        return kept

    def _misfit(self, name: str) -> str:
        """Why the models of an ensemble do not fit together; empty when they do."""
        node = self._dependencies[name]
        parts = {need: self._catalog.find(need, ANY_VERSION).config for need in node.needs}
        try:
            composed(node.files.config, parts)
        except ConfigError as error:
            return error.message
        return ""

    async def _make(self, files: ModelFiles, version: int) -> LoadedModel | Resizing:
        if files.config.is_ensemble:
            return await self._builder.build_ensemble(files, version, self._catalog.find)
        async with self._slots:
            former = self._catalog.served(files.name).get(version)
            if former is not None and (
                resizing := await self._builder.prepare_resize(former, files, version)
            ):
                return resizing
            return await self._load(files, version)

    async def _load(self, files: ModelFiles, version: int) -> LoadedModel:
        """Load one version; what is wrong with the configuration is not tried again (M-12)."""
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
                    "loading '%s' version %s is tried again: %s", files.name, version, error
                )
