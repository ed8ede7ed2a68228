"""Work of one request that is done side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def results_of(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results, in order; the first error ends the rest, and so does leaving."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
