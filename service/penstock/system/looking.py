"""`looking`: looks at something again and again while a context is open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

logger = logging.getLogger(__name__)

Look = Callable[[], Awaitable[None]]


@asynccontextmanager
async def looking(seconds: float, what: str, *looks: Look) -> AsyncIterator[None]:
    """Call each of `looks` at this interval, in a task of its own; `what` names it in the log."""
    tasks = [asyncio.create_task(_each(seconds, what, look)) for look in looks]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _each(seconds: float, what: str, look: Look) -> None:
    while True:
        try:
            await look()
        except Exception:  # a bug must be logged, and must not end the watch
            logger.exception("looking at %s failed", what)
        await asyncio.sleep(seconds)
