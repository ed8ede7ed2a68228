"""Windows: many calls of which a bounded number is open at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


async def in_order(
    call: Callable[[int, Item], Awaitable[Outcome]], items: Iterable[Item], size: int
) -> AsyncGenerator[Outcome, None]:
    """The outcomes of a call for each item and its number, in their order.

    Up to `size` are open; items are taken as there is room. Closing the generator cancels those
    that are open.
    """
    window: deque[asyncio.Future[Outcome]] = deque()
    try:
        for number, item in enumerate(items):
            if len(window) == size:
                yield await window[0]
                window.popleft()
            window.append(asyncio.ensure_future(call(number, item)))
        while window:
            yield await window[0]
            window.popleft()
    finally:
        for one in window:
            one.cancel()
        await asyncio.gather(*window, return_exceptions=True)
