"""How many segments of an object are fetched at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fakes import turns
from penstock.models.remote.segments import AT_ONCE, Lanes, Width


def _after(segments: int, rate: Callable[[int], float]) -> Width:
    """The width after so many segments, of which `rate(width)` come in a second."""
    width, now = Width(), 0.0
    for _ in range(segments):
        now += 1 / rate(width.now)
        width.finished(now)
    return width


def test_a_store_that_is_far_away_is_asked_by_more_and_more_requests() -> None:
    assert _after(40, lambda width: 10.0 * width).now == AT_ONCE


def test_a_store_that_sends_no_quicker_is_asked_by_one_request() -> None:
    assert _after(40, lambda width: 100.0).now == 1


def test_a_store_that_is_quicker_to_a_point_is_asked_by_as_many() -> None:
    assert _after(40, lambda width: min(10.0 * width, 40.0)).now == 4


@pytest.mark.parametrize("segments", [0, 1, 2])
def test_it_begins_with_one(segments: int) -> None:
    assert _after(segments, lambda width: 10.0 * width).now == 1


async def test_as_many_are_let_in_as_the_width_says() -> None:
    lanes, inside, done = Lanes(), 0, asyncio.Event()

    async def stay() -> None:
        nonlocal inside
        async with lanes:
            inside += 1
            await done.wait()

    waiting = [asyncio.ensure_future(stay()) for _ in range(20)]
    await turns()
    assert inside == 1
    done.set()
    await asyncio.gather(*waiting)
    assert inside == 20
