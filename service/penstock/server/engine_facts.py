"""Facts that models tell when they are asked: their adapters, and what their applications serve."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from penstock.core.errors import InferenceError
from penstock.models.serving.loaded_model import LoadedModel

T = TypeVar("T")

_ADAPTERS_SECONDS = 1.0
"""Seconds in which an engine tells its adapters; one that is stuck tells none."""

_DESCRIPTION_SECONDS = 10.0
"""The same for a description, which an application may have to make first."""


async def told_adapters(model: LoadedModel) -> list[str]:
    """The adapters of a model's engine, sorted; none where it has none."""
    told = await _within(_ADAPTERS_SECONDS, model.control("list-adapters", {})) or {}
    found = (one.get("adapters", ()) for one in told.values() if isinstance(one, dict))
    return sorted({str(adapter["name"]) for adapters in found for adapter in adapters})


async def speaks(model: LoadedModel) -> bool:
    """Whether a model has an application; one that does not say is taken to have it."""
    return await _within(_ADAPTERS_SECONDS, model.speaks()) is not False


async def told_descriptions(models: Iterable[LoadedModel]) -> dict[str, Mapping[str, Any]]:
    """The OpenAPI documents of applications, by model; of several versions the highest's."""
    named = {model.config.name: model for model in models}
    asked = (_within(_DESCRIPTION_SECONDS, model.description()) for model in named.values())
    told = zip(named, await asyncio.gather(*asked), strict=True)
    return {name: document for name, document in told if document}


async def _within(seconds: float, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` returns in so many seconds; `None` where it does not, or is refused."""
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
