"""Answers of engines about themselves: adapters, applications, facts for routers.

An engine that is stuck holds up nobody: each is given a second or a few.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.core.change_notifier import ChangeNotifier
from penstock.core.errors import InferenceError
from penstock.models.serving.loaded_model import LoadedModel

T = TypeVar("T")

_SECONDS = 1.0
"""Seconds in which an engine tells something; one that is stuck tells nothing."""

_DESCRIPTION_SECONDS = 10.0
"""The same for a description, which an application may have to make first."""


async def told_adapters(model: LoadedModel) -> list[str]:
    """The adapters of a model's engine, sorted; none where it has none."""
    told = await _within(_SECONDS, model.control("list-adapters", {})) or {}
    found = (one.get("adapters", ()) for one in told.values() if isinstance(one, dict))
    return sorted({str(adapter["name"]) for adapters in found for adapter in adapters})


async def speaks(model: LoadedModel) -> bool:
    """Whether a model has an application; one that does not say is taken to have it."""
    return await _within(_SECONDS, model.speaks()) is not False


async def told_descriptions(models: Iterable[LoadedModel]) -> dict[str, Mapping[str, Any]]:
    """The OpenAPI documents of applications, by model; of several versions the highest's."""
    named = {model.config.name: model for model in models}
    asked = (_within(_DESCRIPTION_SECONDS, model.description()) for model in named.values())
    told = zip(named, await asyncio.gather(*asked), strict=True)
    return {name: document for name, document in told if document}


class EngineNames:
    """The models that routers of engines may use, kept until models change."""

    def __init__(self, changes: ChangeNotifier) -> None:
        self._changes = changes
        self._known: tuple[asyncio.Event, Sequence[str]] | None = None  # until that change

    async def names(self, models: Iterable[LoadedModel]) -> Sequence[str]:
        """Those of `models` that tell facts; once all have told, nobody is asked again."""
        until = self._changes.next
        if self._known is not None and self._known[0] is until:
            return self._known[1]
        named = {model.config.name: model for model in models}
        asked = (_within(_SECONDS, model.engine_facts()) for model in named.values())
        told = zip(named, await asyncio.gather(*asked), strict=True)
        found = [name for name, facts in told if facts is not None]
        if all(model.knows_facts for model in named.values()):
            self._known = until, found
        return found


async def _within(seconds: float, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work` within so many seconds; `None` without one, or where it is refused."""
    asked = asyncio.ensure_future(work)
    try:
        await asyncio.wait([asked], timeout=seconds)
    finally:
        asked.cancel()  # no effect on work that is done
    if not asked.done():
        return None
    error = asked.exception()
    if isinstance(error, InferenceError):
        return None
    return asked.result()
