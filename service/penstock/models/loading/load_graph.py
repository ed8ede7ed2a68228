"""`Loading`: models brought up behind those that they need."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence, Set

from penstock.core.errors import ConfigError, InferenceError
from penstock.core.request import ANY_VERSION
from penstock.models.config.validation.composition import composed
from penstock.models.loading.attempt import Attempt
from penstock.models.loading.build_version import ModelLoader
from penstock.models.loading.dependencies import Dependencies, Failure, Node
from penstock.models.loading.resizing import Resizing
from penstock.models.loading.retirement import Retirement
from penstock.models.repository.repository import ModelFiles, versions_to_load
from penstock.models.serving.catalog import ModelCatalog
from penstock.models.serving.loaded_model import Model

logger = logging.getLogger(__name__)


class Loading:
    """One load: of models that were asked for, what they need, and the ensembles above them.

    Models load side by side; an ensemble waits for its own parts only. Each is tried once,
    and `retries` times more when its backend fails. What serves already as its files say is
    left alone.
    """

    def __init__(
        self,
        catalog: ModelCatalog,
        dependencies: Dependencies,
        loader: ModelLoader,
        retirement: Retirement,
        slots: asyncio.Semaphore,
        retries: int = 0,
    ) -> None:
        self._catalog = catalog
        self._dependencies = dependencies
        self._loader = loader
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
        attempt = Attempt(node.files, versions, self._retirement)
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
            if version in wanted and await self._loader.unchanged(model, files, version):
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

    async def _make(self, files: ModelFiles, version: int) -> Model | Resizing:
        if files.config.is_ensemble:
            return await self._loader.load_ensemble(files, version, self._catalog.find)
        async with self._slots:
            former = self._catalog.served(files.name).get(version)
            if former is not None and (
                resizing := await self._loader.resizing(former, files, version)
            ):
                return resizing
            return await self._load(files, version)

    async def _load(self, files: ModelFiles, version: int) -> Model:
        """Load one version; what is wrong with the configuration is not tried again (M-12)."""
        left = self._retries
        while True:
            try:
                return await self._loader.load(files, version)
            except ConfigError:
                raise
            except Exception as error:  # a backend may raise anything
                if not left:
                    raise
                left -= 1
                logger.warning(
                    "loading '%s' version %s is tried again: %s", files.name, version, error
                )
