"""When what goes on comes to a halt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def standstill(count: Callable[[], int], limit: int = 100_000) -> int:
    """How far a count has come when it goes no further, which must be before the limit.

    Nothing announces that, so this looks again and again.
    """
    before = 0
    async with asyncio.timeout(30):
        while not before or before != count():
            before = count()
            assert before < limit, "it goes on and on"
            await asyncio.sleep(0.3)
    return before
