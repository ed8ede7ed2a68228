"""Windows of calls: their order, their bound, and what is left when they end early."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from penstock_client.client.client import in_order


class _Calls:
    """Calls that end as a test says: each waits for the event of its item."""

    def __init__(self, *items: str) -> None:
        self.items = items
        self.ends = {item: asyncio.Event() for item in items}
        self.taken: list[str] = []
        self.cancelled: list[str] = []

    def take(self) -> Iterator[str]:
        for item in self.items:
            self.taken.append(item)
            yield item

    async def call(self, number: int, item: str) -> str:
        try:
            await self.ends[item].wait()
        except asyncio.CancelledError:
            self.cancelled.append(item)
            raise
        if item == "x":
            raise ValueError(item)
        return f"{number}{item}"


async def test_outcomes_are_in_order_and_few_calls_are_open() -> None:
    calls = _Calls("a", "b", "c")
    async with aclosing(in_order(calls.call, calls.take(), 2)) as outcomes:
        first = asyncio.ensure_future(anext(outcomes))
        calls.ends["b"].set()
        calls.ends["c"].set()
        await asyncio.sleep(0)
        assert calls.taken == ["a", "b", "c"], "one is taken ahead, and waits for room"
        assert not first.done()
        calls.ends["a"].set()
        assert [await first, *[outcome async for outcome in outcomes]] == ["0a", "1b", "2c"]


async def test_leaving_cancels_what_is_open() -> None:
    calls = _Calls("a", "b", "c")
    calls.ends["a"].set()
    async with aclosing(in_order(calls.call, calls.take(), 3)) as outcomes:
        assert await anext(outcomes) == "0a"
    assert calls.cancelled == ["b", "c"]


async def test_cancelling_cancels_what_is_open() -> None:
    calls = _Calls("a", "b")
    outcomes = in_order(calls.call, calls.take(), 2)
    waiting = asyncio.ensure_future(anext(outcomes))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sorted(calls.cancelled) == ["a", "b"]


async def test_an_error_ends_all() -> None:
    calls = _Calls("x", "b")
    calls.ends["x"].set()
    with pytest.raises(ValueError, match="x"):
        await anext(in_order(calls.call, calls.take(), 2))
    assert calls.cancelled == ["b"]
