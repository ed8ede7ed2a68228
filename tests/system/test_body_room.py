"""Bodies that wait for memory, and those that are refused for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import numpy as np
import pytest

from fakes.loops import in_virtual_time
from penstock.system.body_room import BodyRoom, Incomplete

MIB = 1 << 20


class Bodies:
    """Bodies in memory of a room, and the names of those that were told to go on or refused."""

    def __init__(self, room: BodyRoom) -> None:
        self.told: list[str] = []
        self._room = room
        self._held: dict[str, memoryview] = {}

    def fill(self, name: str, size: int = MIB) -> None:
        self._held[name] = np.empty(8, np.uint8).data
        self._room.quota.open(self._held[name], size)

    def free(self, name: str) -> None:
        del self._held[name]

    def wait(self, name: str) -> None:
        self._room.wait(lambda: self.told.append(name))

    def wait_with(self, on_room: Callable[[], None]) -> None:
        self._room.wait(on_room)

    def refused(self, name: str) -> None:
        self.told.append(f"no {name}")
        self._held.pop(name, None)


@pytest.fixture
def room() -> BodyRoom:
    return BodyRoom(MIB)


@pytest.fixture
def bodies(room: BodyRoom) -> Bodies:
    return Bodies(room)


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_bodies_go_on_once_there_is_room(bodies: Bodies) -> None:
    bodies.fill("a")
    bodies.wait("b")
    await turns()
    assert bodies.told == []
    bodies.free("a")
    await turns()
    assert bodies.told == ["b"]


async def test_as_many_go_on_as_there_is_room_for(bodies: Bodies) -> None:
    bodies.fill("a")
    for name in "bcd":
        bodies.wait(name)
    bodies.free("a")
    await turns()
    assert bodies.told == ["b"]


async def test_others_have_the_room_that_one_of_them_does_not_take(bodies: Bodies) -> None:
    """Its client may send nothing more."""
    bodies.fill("a")
    last = asyncio.Event()
    for name in "bcd":
        bodies.wait(name)
    bodies.wait_with(last.set)
    bodies.free("a")
    await asyncio.wait_for(last.wait(), 20)
    assert bodies.told == ["b", "c", "d"]


async def test_memory_that_is_freed_before_a_body_waits_is_seen(
    room: BodyRoom, bodies: Bodies
) -> None:
    """Another thread may free it between the look at the quota and the wait."""
    bodies.fill("a")
    assert room.quota.exhausted
    thread = threading.Thread(target=bodies.free, args=("a",))
    thread.start()
    thread.join()
    bodies.wait("b")
    await turns()
    assert bodies.told == ["b"]


async def test_who_waits_no_more_is_not_told(room: BodyRoom, bodies: Bodies) -> None:
    bodies.fill("a")
    waiting = asyncio.ensure_future(room.room())
    await turns()
    waiting.cancel()
    await turns()
    bodies.wait("b")
    bodies.free("a")
    await turns()
    assert bodies.told == ["b"]
    assert waiting.cancelled()


async def test_room_is_waited_for_only_where_there_is_none(room: BodyRoom, bodies: Bodies) -> None:
    await room.room()
    bodies.fill("a")
    waiting = asyncio.ensure_future(room.room())
    await turns()
    assert not waiting.done()
    bodies.free("a")
    await waiting


async def test_eldest_incomplete_body_of_all_ports_is_refused() -> None:
    room = BodyRoom(MIB, patience=0.01)
    bodies, refused = Bodies(room), asyncio.Event()

    def refuse(name: str) -> None:
        bodies.refused(name)
        refused.set()

    room.eldest = [
        lambda: Incomplete(7, lambda: refuse("young")),
        lambda: None,
        lambda: Incomplete(3, lambda: refuse("old")),
    ]
    bodies.fill("old")
    bodies.wait("b")
    await asyncio.wait_for(refused.wait(), 20)
    await turns()
    assert bodies.told == ["no old", "b"]


@in_virtual_time
async def test_nobody_is_refused_where_nobody_waits() -> None:
    room = BodyRoom(MIB, patience=1)
    bodies = Bodies(room)
    room.eldest = [lambda: Incomplete(1, lambda: bodies.refused("a"))]
    bodies.fill("a")
    waiting = asyncio.ensure_future(room.room())
    await turns()
    waiting.cancel()
    await asyncio.sleep(10)
    assert bodies.told == []


@in_virtual_time
async def test_many_small_bodies_that_never_come_keep_nobody_out() -> None:
    """One of them a second would free too little."""
    room = BodyRoom(64 * MIB)
    bodies, silent = Bodies(room), [f"silent {number}" for number in range(2000)]
    for name in silent:
        bodies.fill(name, 40_000)

    def refuse() -> None:
        bodies.refused(silent.pop(0))

    room.eldest = [lambda: Incomplete(0, refuse) if silent else None]
    came = asyncio.Event()
    for part in range(4):
        came.clear()
        bodies.wait_with(came.set)
        await asyncio.wait_for(came.wait(), 30)
        bodies.fill(f"part {part}", 4 * MIB)
    assert len(silent) > 1000


@in_virtual_time
async def test_the_eldest_is_refused_after_the_patience_and_more_ever_sooner() -> None:
    room = BodyRoom(64 * MIB, patience=8.0)
    loop, told = asyncio.get_running_loop(), list[tuple[str, float]]()
    bodies, begun = Bodies(room), asyncio.get_running_loop().time()
    names = [str(number) for number in range(6)]

    def refuse() -> None:
        told.append((name := names.pop(0), round(loop.time() - begun, 6)))
        if name == "3":
            bodies.free("all")

    room.eldest = [lambda: Incomplete(1, refuse) if names else None]
    bodies.fill("all", 64 * MIB)
    bodies.wait("late")
    await asyncio.sleep(7.9)
    assert told == []
    await asyncio.sleep(60)
    assert told == [("0", 8.0), ("1", 8.8), ("2", 9.2), ("3", 9.4)]
    assert bodies.told == ["late"]


@in_virtual_time
async def test_who_has_gone_on_in_time_is_no_reason_to_refuse_anybody() -> None:
    room = BodyRoom(64 * MIB, patience=8.0)
    bodies = Bodies(room)
    room.eldest = [lambda: Incomplete(1, lambda: bodies.refused("eldest"))]
    bodies.fill("all", 64 * MIB)
    bodies.wait("a")
    await asyncio.sleep(7.0)
    bodies.free("all")
    await asyncio.sleep(60)
    assert bodies.told == ["a"]
