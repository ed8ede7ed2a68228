"""Names that one operation has to itself."""

from __future__ import annotations

import asyncio

from fakes import turns
from penstock.models.loading.reservations import Reservations


class Line:
    """Operations that lock names, report it, and keep them until released."""

    def __init__(self) -> None:
        self.reservations = Reservations()
        self.inside: list[str] = []

    def come(self, names: str) -> tuple[asyncio.Task[None], asyncio.Event]:
        leave = asyncio.Event()
        return asyncio.ensure_future(self._hold(names, leave)), leave

    async def _hold(self, names: str, leave: asyncio.Event) -> None:
        async with self.reservations.reserve(set(names)):
            self.inside.append(names)
            await leave.wait()
            self.inside.remove(names)


async def test_different_names_are_held_at_the_same_time() -> None:
    line = Line()
    tasks = [line.come("a"), line.come("bc")]
    await turns()
    assert line.inside == ["a", "bc"]
    for task, leave in tasks:
        leave.set()
        await task


async def test_who_shares_a_name_waits() -> None:
    line = Line()
    first, leave = line.come("ab")
    second, leave_too = line.come("bc")
    await turns()
    assert line.inside == ["ab"]
    leave.set()
    await turns()
    assert line.inside == ["bc"]
    leave_too.set()
    await asyncio.gather(first, second)


async def test_waiters_for_the_same_name_keep_their_order() -> None:
    """Otherwise a waiter for many names might starve."""
    line = Line()
    first, leave_first = line.come("a")
    many, leave_many = line.come("ab")
    late, leave_late = line.come("b")
    await turns()
    assert line.inside == ["a"]
    leave_first.set()
    await turns()
    assert line.inside == ["ab"]
    leave_many.set()
    leave_late.set()
    await asyncio.gather(first, many, late)
    assert line.inside == []


async def test_a_cancelled_waiter_lets_the_next_in() -> None:
    line = Line()
    first, leave = line.come("a")
    many, _ = line.come("ab")
    late, leave_late = line.come("b")
    await turns()
    many.cancel()
    await turns()
    assert line.inside == ["a", "b"]
    leave.set()
    leave_late.set()
    await asyncio.gather(first, late)


async def test_one_who_gives_up_when_its_turn_has_come_holds_nothing() -> None:
    reservations = Reservations()
    async with reservations.reserve({"a"}):
        waiting = asyncio.ensure_future(_enter(reservations, "a"))
        await turns()
    waiting.cancel()  # it was let in just now, and has not run since
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    await asyncio.wait_for(_enter(reservations, "a"), 20)


async def test_names_that_the_caller_adds_meanwhile_are_not_given_back() -> None:
    reservations, names = Reservations(), {"a"}
    async with reservations.reserve({"b"}):
        async with reservations.reserve(names):
            names.add("b")
        waiting = asyncio.ensure_future(_enter(reservations, "b"))
        await turns()
        assert not waiting.done()
    await waiting


async def _enter(reservations: Reservations, name: str) -> None:
    async with reservations.reserve({name}):
        pass
