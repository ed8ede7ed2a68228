"""`Rests`: idle models sleep, where their engine can, or free their caches; a call wakes them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from functools import partial

from penstock.core.errors import InferenceError, UnsupportedError
from penstock.models.residency.known_model import KnownModel
from penstock.models.serving.loaded_model import LoadedModel

logger = logging.getLogger(__name__)

ASLEEP, SHRUNK = "asleep", "shrunk"
"""States of a model that rests."""


class Rests:
    """The models that rest, and since which request; lives on the event loop.

    A sleeping model keeps the requests that come until its engine is awake. `wakes` counts them by
    model.
    """

    def __init__(self) -> None:
        self.wakes = Counter[tuple[str, str]]()
        self._resting: dict[LoadedModel, tuple[str, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused: set[str] = set()

    def state(self, name: str) -> str:
        """How a model rests; empty for one that does not."""
        states = (state for model, (state, _) in self._resting.items() if model.config.name == name)
        return next(states, "")

    def states(self) -> dict[str, str]:
        """The models that rest, and how."""
        return {model.config.name: state for model, (state, _) in self._resting.items()}

    def look(self, models: Iterable[LoadedModel]) -> None:
        """Note which models are gone, or have been used since they were shrunk."""
        models = {*models}
        for model, (state, used) in [*self._resting.items()]:
            if model not in models or (state == SHRUNK and model.statistics.last_ended != used):
                del self._resting[model]

    async def rest(self, model: LoadedModel, known: KnownModel) -> bool:
        """Let an idle model sleep, or else free its caches; whether it did not rest before."""
        if model in self._resting:
            return False
        name = model.config.name
        state = ASLEEP if await self._sleep(model, known.sleep_level) else SHRUNK
        if state == SHRUNK:
            model.shrink()
        self._resting[model] = state, model.statistics.last_ended
        logger.info("model '%s' is idle: it is %s", name, state)
        return True

    async def _sleep(self, model: LoadedModel, level: int) -> bool:
        """Whether its engine sleeps now; one that refuses is not asked again."""
        name = model.config.name
        if name in self._refused:
            return False
        asleep = asyncio.get_running_loop().create_future()
        model.hold(partial(self._wake_later, model, asleep))
        try:
            await model.control("sleep", {"level": level, "mode": "wait"})
        except InferenceError as error:
            self._refused.add(name)
            model.resume()
            if not isinstance(error, UnsupportedError):
                logger.warning("model '%s' cannot sleep, and is shrunk: %s", name, error.message)
            return False
        finally:
            asleep.set_result(None)
        return True

    def _wake_later(self, model: LoadedModel, asleep: asyncio.Future[None]) -> None:
        task = asyncio.get_running_loop().create_task(self._wake(model, asleep))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake(self, model: LoadedModel, asleep: asyncio.Future[None]) -> None:
        """Wake a model once it sleeps, and let it have its requests."""
        await asleep
        name = model.config.name
        if name in self._refused:
            return
        self._resting.pop(model, None)
        try:
            await model.control("wake", {})
        except InferenceError as error:  # its requests are told what is wrong
            logger.error("model '%s' cannot be woken: %s", name, error.message)
        self.wakes[name, "call"] += 1
        logger.info("model '%s' is awake", name)
        model.resume()
