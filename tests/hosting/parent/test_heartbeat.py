"""When a model process is taken for hung."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import in_virtual_time
from hosting.puppets import PATIENCE
from penstock.hosting.parent.model_process import Heartbeat, Silence


@given(st.integers(2, 20), st.lists(st.booleans(), max_size=60))
def test_silence_is_too_long_after_so_many_ticks_without_a_sign(
    limit: int, signs: list[bool]
) -> None:
    silence, count = Silence(limit), 0
    silence.begin(count)
    for at, sign in enumerate(signs, start=1):
        count += sign
        silence.tick(count)
        quiet = "".join("01"[sign] for sign in signs[:at]).rpartition("1")[2]
        assert silence.too_long == (len(quiet) >= limit)


class Watched:
    """A process as its heartbeat sees it."""

    def __init__(self, seconds: float) -> None:
        self.waiting = True
        self.signs = 0
        self.asked = asyncio.Event()
        self.changes: asyncio.Queue[bool] = asyncio.Queue()
        self.heartbeat = Heartbeat(
            seconds,
            lambda: self.waiting,
            lambda: self.signs,
            self.asked.set,
            self.changes.put_nowait,
        )

    async def change(self) -> bool:
        return await asyncio.wait_for(self.changes.get(), PATIENCE)


@in_virtual_time
async def test_process_that_gives_no_sign_is_asked_and_then_hung() -> None:
    watched = Watched(0.05)
    watched.heartbeat.watch()
    assert await watched.change() is True
    assert watched.asked.is_set()
    assert watched.heartbeat.hung
    watched.heartbeat.close()


@in_virtual_time
async def test_hung_process_is_not_hung_any_more_with_its_next_sign() -> None:
    watched = Watched(0.05)
    watched.heartbeat.watch()
    assert await watched.change() is True
    watched.waiting = False  # who waited has left
    watched.signs += 1
    watched.heartbeat.on_sign()
    assert watched.changes.get_nowait() is False
    assert not watched.heartbeat.hung


@in_virtual_time
async def test_hung_process_is_watched_until_a_sign_though_nobody_waits() -> None:
    watched = Watched(0.05)
    watched.heartbeat.watch()
    assert await watched.change() is True
    watched.waiting = False
    watched.asked.clear()
    await watched.asked.wait()  # again, as the first probe may not have been sent
    watched.signs += 1
    assert await watched.change() is False
    watched.heartbeat.close()


@in_virtual_time
async def test_unsolicited_sign_ends_the_hang() -> None:
    watched = Watched(0.05)
    watched.heartbeat.watch()
    assert await watched.change() is True
    watched.signs += 1
    assert await watched.change() is False
    watched.heartbeat.close()


@in_virtual_time
async def test_hung_process_stays_hung_for_later_requests() -> None:
    watched = Watched(0.05)
    watched.heartbeat.watch()
    assert await watched.change() is True
    watched.heartbeat.watch()
    watched.heartbeat.on_sign()
    await asyncio.sleep(0.1)
    assert watched.changes.empty()
    assert watched.heartbeat.hung
    watched.heartbeat.close()


@pytest.mark.parametrize("seconds", [0.0, 0.02])
@in_virtual_time
async def test_process_is_left_alone_while_nothing_waits_or_that_is_off(seconds: float) -> None:
    watched = Watched(seconds)
    watched.waiting = not seconds
    watched.heartbeat.watch()
    await asyncio.sleep(0.1)
    assert not watched.asked.is_set()
    assert watched.changes.empty()


@in_virtual_time
async def test_process_that_gives_signs_is_not_asked() -> None:
    watched = Watched(10.0)
    watched.heartbeat.watch()
    watched.signs += 1
    await asyncio.sleep(1.1)  # a tick
    assert not watched.asked.is_set()
    watched.heartbeat.close()
