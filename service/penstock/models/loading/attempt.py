"""`Attempt`: one load of a model, and what became of the versions that it wants."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

from penstock.core.errors import InferenceError, as_inference_error
from penstock.models.loading.resizing import Resizing
from penstock.models.loading.retirement import Retirement
from penstock.models.repository.repository import ModelFiles
from penstock.models.serving.loaded_model import Model
from penstock.models.serving.version_state import UNLOADED, State, Versions

logger = logging.getLogger(__name__)

MakeModel = Callable[[ModelFiles, int], Awaitable[Model | Resizing]]


class Attempt:
    """Loads versions of a model beside those that serve. All of them take over, or none does."""

    def __init__(self, files: ModelFiles, versions: Versions, retirement: Retirement) -> None:
        self._files = files
        self._versions = versions
        self._retirement = retirement
        self._loaded: dict[int, Model | Resizing] = {}
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
            status.move(State.LOADING)
        logger.info("loading: %s:%s", self._files.name, version)
        begun = time.monotonic()
        try:
            loaded = self._loaded[version] = await make(self._files, version)
            if isinstance(loaded, Model):
                loaded.load_seconds = time.monotonic() - begun
        except BaseException as error:  # a backend may raise anything, and a load may be given up
            failure = self._failures[version] = as_inference_error(error)
            reason = f"{word(failure)}: {failure.message}"
            logger.error("failed to load '%s' version %s: %s", self._files.name, version, reason)
            if status.model is None:
                status.move(State.UNAVAILABLE, reason)
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
            status.move(State.READY, model=model)
            logger.info("successfully loaded '%s'", self._files.name)
            if former is not None:
                self._retirement.retire(former)

    def _discard(self) -> None:
        """Give up the new models, since not all of their load were made."""
        for version, loaded in self._loaded.items():
            status = self._versions.statuses[version]
            if status.model is None:
                status.move(State.UNAVAILABLE, UNLOADED)
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
