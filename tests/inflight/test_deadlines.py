"""The timing wheel, and the expiry of deadlines."""

from __future__ import annotations

import asyncio
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from fakes import in_virtual_time
from penstock.inflight.deadlines import Deadlines, TimingWheel


class Item:
    """Remembers when it expired."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def expire(self) -> None:
        self.at.append(asyncio.get_running_loop().time())


def test_empty_wheel_never_asks_to_be_looked_at() -> None:
    assert TimingWheel[str]().next() == inf


def test_nothing_is_due_before_its_time() -> None:
    wheel = TimingWheel[str]()
    wheel.add("a", 5.0, now=0.0)
    assert wheel.due(4.99) == []
    assert wheel.due(5.02) == ["a"]
    assert wheel.next() == inf


def test_who_leaves_the_ticket_is_not_due() -> None:
    wheel = TimingWheel[str]()
    ticket = wheel.add("a", 5.0, now=0.0)
    wheel.add("b", 5.0, now=0.0)
    del ticket["a"]
    assert wheel.due(6.0) == ["b"]


def test_deadlines_of_the_past_are_due_at_once() -> None:
    wheel = TimingWheel[str]()
    wheel.add("late", 1.0, now=9.0)
    assert wheel.due(9.0) == ["late"]


def test_many_far_deadlines_share_a_few_slots() -> None:
    wheel = TimingWheel[int]()
    tickets = [wheel.add(n, 60.0 + n / 1000, now=0.0) for n in range(5000)]
    assert len({id(ticket) for ticket in tickets}) <= 6


@given(st.floats(0, 1e9))
def test_slot_that_was_looked_at_is_empty_however_times_are_rounded(when: float) -> None:
    wheel = TimingWheel[str]()
    wheel.add("a", when, now=when - 1.0)
    assert wheel.due(wheel.next()) == ["a"]
    assert wheel.next() == inf


@given(st.lists(st.floats(0, 100), max_size=50), st.floats(0.001, 3.0))
def test_everything_is_due_once_and_hardly_late(times: list[float], step: float) -> None:
    wheel = TimingWheel[int]()
    for number, when in enumerate(times):
        wheel.add(number, when, now=0.0)
    found: dict[int, float] = {}
    now = 0.0
    while wheel.next() < inf:
        now = max(now, wheel.next()) if step > 1 else now + step
        for number in wheel.due(now):
            assert number not in found
            found[number] = now
    assert sorted(found) == list(range(len(times)))
    late = 0.0101 if step > 1 else 0.0101 + step
    assert all(times[n] - 0.0011 <= at <= times[n] + late for n, at in found.items())


@in_virtual_time
async def test_items_expire_at_their_times() -> None:
    deadlines, items = Deadlines(), [Item() for _ in range(4)]
    for item, when in zip(items, (30.0, 0.5, 12.25, 0.5), strict=True):
        deadlines.watch(item, when)
    await asyncio.sleep(60)
    assert [round(at, 1) for item in items for at in item.at] == [30.0, 0.5, 12.2, 0.5]


@in_virtual_time
async def test_item_that_left_does_not_expire() -> None:
    deadlines, item = Deadlines(), Item()
    ticket = deadlines.watch(item, 1.0)
    del ticket[item]
    await asyncio.sleep(5)
    assert item.at == []


@in_virtual_time
async def test_earlier_deadline_that_comes_later_is_kept() -> None:
    deadlines, far, near = Deadlines(), Item(), Item()
    deadlines.watch(far, 20.0)
    await asyncio.sleep(1)
    deadlines.watch(near, 2.0)
    await asyncio.sleep(5)
    assert [round(at, 2) for at in near.at] == [2.0]
    assert far.at == []
