"""Starting the instances of a model: all of them, or none."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from penstock.models.serving.loaded_model import ModelInstance

_SIDE_BY_SIDE = "TRITON_PARALLEL_INSTANCE_LOADING"
"""At 0 in the environment, instances start one after the other: for the memory it takes (I-12)."""


async def start_all(
    instances: Sequence[ModelInstance], prepare: Callable[[ModelInstance], Awaitable[None]]
) -> None:
    """When one fails, or the load is given up, those that have started are ended again."""
    started: list[ModelInstance] = []

    async def start(instance: ModelInstance) -> None:
        await instance.start()
        started.append(instance)
        await prepare(instance)

    try:
        if os.environ.get(_SIDE_BY_SIDE) == "0":
            for instance in instances:
                await start(instance)
            return
        results = await asyncio.gather(*map(start, instances), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
    except BaseException:
        for instance in started:  # also those that have died since, and would be restarted
            with suppress(Exception):  # the first failure is what counts
                await instance.stop()
        raise
