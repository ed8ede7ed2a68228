"""How many segments of an object are fetched at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes import turns
from harness.object_store import ObjectStore
from models.remote.opening import KEYS
from penstock.models.remote.address import BucketAddress
from penstock.models.remote.bucket import Bucket
from penstock.models.remote.credentials import Credentials
from penstock.models.remote.part import SEGMENT, Part
from penstock.models.remote.segments import AT_ONCE, Lanes, Width, fetch_segments
from penstock.models.remote.store_thread import StoreThread


def _after(segments: int, rate: Callable[[int], float]) -> Width:
    """The width after so many segments, of which `rate(width)` come in a second."""
    width, now = Width(), 0.0
    for _ in range(segments):
        now += 1 / rate(width.now)
        width.finished(now - width.now / rate(width.now), now, 1)
    return width


def test_a_store_that_is_far_away_is_asked_by_more_and_more_requests() -> None:
    assert _after(40, lambda width: 10.0 * width).now == AT_ONCE


@pytest.mark.parametrize("rate", [1.0, 20.0, 100.0])
def test_a_store_that_sends_no_quicker_is_asked_by_one_request(rate: float) -> None:
    settled = _after(40, lambda width: rate)
    assert settled.now == 1
    assert settled.segments == (64 if rate == 100.0 else 16)


def test_what_comes_as_quick_as_it_can_be_hashed_is_asked_for_by_one_request() -> None:
    """A second one would bring more, and take more of the processor for each byte."""
    settled = _after(1, lambda width: 40.0 * width)
    assert (settled.now, settled.segments) == (1, 16)
    settled.finished(1.0, 1.4, settled.segments)
    assert (settled.now, settled.segments) == (1, 64)


def test_a_store_that_begins_quicker_than_it_goes_on_is_asked_by_more_requests() -> None:
    width = _after(1, lambda _: 100.0)
    width.finished(1.0, 3.0, width.segments)
    assert width.segments == 1
    now = 3.0
    for _ in range(40):
        width.finished(now, now + 0.1 / width.now, 1)
        now += 0.1 / width.now
    assert width.now == AT_ONCE


@pytest.mark.parametrize("segments", [0, 3, 40])
def test_a_request_is_for_one_segment_while_more_requests_may_pay(segments: int) -> None:
    assert _after(segments, lambda width: 10.0 * width).segments == 1


def test_segments_in_a_row_come_by_one_request(store: ObjectStore, tmp_path: Path) -> None:
    """A broken answer goes on from the byte; each segment is told when it is whole."""
    content = os.urandom(2 * SEGMENT + 7)
    store.put("m/1/weights", content)
    thread = StoreThread()
    bucket = Bucket(BucketAddress.parse(store.address), Credentials(KEYS, tmp_path), thread)
    [stored] = bucket.objects("m")
    store.cut_after = [SEGMENT + 1000]
    with (tmp_path / "lock").open("wb") as lock:
        part = Part(tmp_path / "part", len(content), lock)
        thread.run(fetch_segments(bucket, stored, part, 0, len(content), lambda *_: None))
        part.close()
        again = Part(tmp_path / "part", len(content), lock)
        again.close()
    thread.close()
    assert again.done == {0, SEGMENT, 2 * SEGMENT}
    assert (tmp_path / "part").read_bytes() == content
    assert store.gets["m/1/weights"] == 2


def test_a_store_that_is_quicker_to_a_point_is_asked_by_as_many() -> None:
    assert _after(40, lambda width: min(10.0 * width, 40.0)).now == 4


@pytest.mark.parametrize("segments", [0, 1, 2])
def test_it_begins_with_one(segments: int) -> None:
    assert _after(segments, lambda width: 10.0 * width).now == 1


async def test_as_many_are_let_in_as_the_width_says() -> None:
    lanes, inside, done = Lanes(), 0, asyncio.Event()

    async def stay(most: int) -> int:
        nonlocal inside
        inside += 1
        await done.wait()
        return most

    waiting = [asyncio.ensure_future(lanes.fetch(stay)) for _ in range(20)]
    await turns()
    assert inside == 1
    done.set()
    await asyncio.gather(*waiting)
    assert inside == 20


async def test_who_gives_up_has_no_place_any_more_whether_it_fetched_or_waited() -> None:
    lanes, begun = Lanes(), 0

    async def stay(_: int) -> int:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()
        return 1

    async def one(_: int) -> int:
        return 1

    inside = asyncio.ensure_future(lanes.fetch(stay))
    await turns()
    waiting = asyncio.ensure_future(lanes.fetch(stay))
    await turns()
    waiting.cancel()
    inside.cancel()
    ended = await asyncio.gather(inside, waiting, return_exceptions=True)
    assert [type(each) for each in ended] == [asyncio.CancelledError] * 2
    assert begun == 1
    for _ in range(3):
        async with asyncio.timeout(20):
            await lanes.fetch(one)
