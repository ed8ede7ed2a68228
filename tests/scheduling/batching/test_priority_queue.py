"""The order of service, timeouts and rejections, with plain numbers for a clock."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.scheduling.batching.priority import LevelPolicy, PriorityLevels
from penstock.scheduling.batching.priority_queue import Entry, PriorityQueue

REJECTING = LevelPolicy(timeout=5.0, overridable=True)
DELAYING = LevelPolicy(timeout=5.0, delays=True)


def _levels(policies: Mapping[int, LevelPolicy]) -> PriorityLevels:
    return PriorityLevels(count=len(policies), default=1, policies=policies)


def _one(policy: LevelPolicy) -> PriorityQueue[str]:
    return PriorityQueue(PriorityLevels(default_policy=policy))


def _added(
    queue: PriorityQueue[str], name: str, now: float = 0.0, priority: int = 0, timeout: float = 0.0
) -> Entry[str]:
    entry = Entry(name, 1, None, now)
    assert queue.add(entry, priority, timeout)
    return entry


def _order(queue: PriorityQueue[str]) -> str:
    return "".join(entry.item for entry in queue)


# -- order ---------------------------------------------------------------------------------------


@pytest.mark.contract("D-09")
def test_higher_levels_are_served_first_and_the_oldest_of_each() -> None:
    queue = PriorityQueue[str](_levels({1: LevelPolicy(), 2: LevelPolicy(), 3: LevelPolicy()}))
    for name, priority in (("a", 3), ("b", 1), ("c", 2), ("d", 1), ("e", 3)):
        _added(queue, name, priority=priority)
    assert _order(queue) == "bdcae"


@pytest.mark.contract("D-13")
def test_a_delayed_request_comes_behind_its_level_but_before_lower_ones() -> None:
    queue = PriorityQueue[str](_levels({1: DELAYING, 2: LevelPolicy()}))
    _added(queue, "a", now=0.0, priority=1)
    _added(queue, "b", now=1.0, priority=2)
    _added(queue, "c", now=4.0, priority=1)
    assert queue.expire(5.0) == []
    assert _order(queue) == "cab"


def test_delayed_requests_keep_their_order() -> None:
    queue = _one(DELAYING)
    for number, name in enumerate("abc"):
        _added(queue, name, now=number)
    queue.expire(6.5)
    assert _order(queue) == "cab"
    queue.expire(100.0)
    assert _order(queue) == "abc"


def test_whether_a_request_is_the_last_one_depends_on_its_level() -> None:
    queue = PriorityQueue[str](_levels({1: LevelPolicy(), 2: LevelPolicy()}))
    assert queue.is_last(_added(queue, "a", priority=2))
    assert not queue.is_last(_added(queue, "b", priority=1))
    assert queue.is_last(_added(queue, "c", priority=2))


# -- time ----------------------------------------------------------------------------------------


@pytest.mark.contract("D-12")
def test_a_request_whose_time_is_up_is_rejected_and_gone() -> None:
    queue = _one(REJECTING)
    _added(queue, "a", now=0.0)
    _added(queue, "b", now=1.0)
    assert queue.next_expiry() == 5.0
    assert queue.expire(4.9) == []
    assert queue.expire(5.0) == ["a"]
    assert (_order(queue), queue.next_expiry()) == ("b", 6.0)


def test_a_shorter_time_of_its_own_is_up_first() -> None:
    queue = _one(REJECTING)
    _added(queue, "a", now=0.0)
    _added(queue, "b", now=1.0, timeout=2.0)
    assert queue.expire(3.0) == ["b"]


def test_who_was_taken_in_time_does_not_expire() -> None:
    queue = _one(REJECTING)
    queue.remove(_added(queue, "a"))
    assert queue.next_expiry() == inf
    assert queue.expire(99.0) == []


def test_a_delayed_request_does_not_expire_again() -> None:
    queue = _one(DELAYING)
    _added(queue, "a")
    queue.expire(5.0)
    assert queue.next_expiry() == inf
    assert queue.expire(99.0) == []
    assert _order(queue) == "a"


def test_removed_requests_are_not_remembered() -> None:
    queue = _one(REJECTING)
    for _ in range(1000):
        queue.remove(_added(queue, "a"))
    assert len(queue._expiring) < 50


# -- room ----------------------------------------------------------------------------------------


@pytest.mark.contract("D-11")
def test_a_full_level_takes_no_request_until_one_leaves() -> None:
    policies = {1: LevelPolicy(max_queue_size=2), 2: LevelPolicy()}
    queue = PriorityQueue[str](_levels(policies))
    first = _added(queue, "a", priority=1)
    _added(queue, "b", priority=1)
    assert not queue.add(Entry("c", 1, None, 0.0), priority=1)
    _added(queue, "d", priority=2)
    queue.remove(first)
    _added(queue, "e", priority=1)
    assert _order(queue) == "bed"


def test_delayed_requests_count() -> None:
    queue = _one(LevelPolicy(timeout=1.0, delays=True, max_queue_size=1))
    _added(queue, "a")
    queue.expire(2.0)
    assert not queue.add(Entry("b", 1, None, 2.0))


def test_a_level_that_ran_empty_is_used_again() -> None:
    queue = _one(LevelPolicy())
    for _ in range(9):
        queue.remove(_added(queue, "a"))
    assert len(queue._active) == 1


def test_empty_levels_do_not_pile_up() -> None:
    """A client may use as many priorities as there are levels."""
    queue = PriorityQueue[str](PriorityLevels(count=1 << 40, default=1))
    for priority in range(1, 500):
        queue.remove(_added(queue, "a", priority=priority))
    assert len(queue._active) < 50


# -- all of it -----------------------------------------------------------------------------------

POLICIES = st.builds(
    LevelPolicy,
    timeout=st.sampled_from([0.0, 2.0, 5.0]),
    delays=st.booleans(),
    overridable=st.booleans(),
    max_queue_size=st.sampled_from([0, 1, 3]),
)


class Model(RuleBasedStateMachine):
    """Whatever happens to the queue, a list of everything says what must be in it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.taken = self.rejected = self.refused = self.added = self.left = 0
        self.entries: dict[int, tuple[Entry[int], int, float]] = {}
        self.delayed: list[int] = []
        self.policies = {1: LevelPolicy(), 2: LevelPolicy(), 3: LevelPolicy()}
        self.queue = PriorityQueue[int](_levels(self.policies))

    @precondition(lambda self: not self.added)
    @rule(policies=st.tuples(POLICIES, POLICIES, POLICIES))
    def configure(self, policies: tuple[LevelPolicy, LevelPolicy, LevelPolicy]) -> None:
        self.policies = dict(enumerate(policies, 1))
        self.queue = PriorityQueue[int](_levels(self.policies))

    @rule(level=st.integers(1, 3), timeout=st.sampled_from([0.0, 1.0, 3.0, 9.0]))
    def add(self, level: int, timeout: float) -> None:
        self.added += 1
        number, policy = self.added, self.policies[level]
        waiting = sum(known == level for _, known, _ in self.entries.values())
        entry = Entry(number, 1, None, self.now)
        added = self.queue.add(entry, level, timeout)
        assert added is not (0 < policy.max_queue_size <= waiting)
        if added:
            allowed_wait = policy.queue_timeout(timeout)
            self.entries[number] = (entry, level, self.now + allowed_wait if allowed_wait else inf)
        else:
            self.refused += 1

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        up = [n for n, (_, _, expires) in self.entries.items() if expires <= self.now]
        up.sort(key=lambda number: (self.entries[number][2], number))
        expected = []
        for number in up:
            entry, level, _ = self.entries[number]
            if self.policies[level].delays:
                self.delayed.append(number)
                self.entries[number] = (entry, level, inf)
            else:
                expected.append(number)
                del self.entries[number]
        assert self.queue.expire(self.now) == expected
        self.rejected += len(expected)

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.entries)))
        self.queue.remove(self.entries.pop(number)[0])
        self.left += 1

    @precondition(lambda self: self.entries)
    @rule()
    def take_the_first(self) -> None:
        entry = next(iter(self.queue))
        self.queue.remove(entry)
        del self.entries[entry.item]
        self.taken += 1

    @invariant()
    def nobody_is_lost_and_the_order_is_right(self) -> None:
        def place(number: int) -> tuple[int, bool, int]:
            late = number in self.delayed
            return self.entries[number][1], late, self.delayed.index(number) if late else number

        assert [entry.item for entry in self.queue] == sorted(self.entries, key=place)
        assert len(self.queue) == len(self.entries)
        gone = self.taken + self.rejected + self.refused + self.left
        assert self.added == len(self.queue) + gone

    @invariant()
    def the_next_expiry_is_the_first_of_those_who_wait(self) -> None:
        times = [expires for _, _, expires in self.entries.values()]
        assert self.queue.next_expiry() == min(times, default=inf)


TestModel = Model.TestCase


@given(st.lists(st.integers(1, 3), max_size=30), st.floats(0, 9))
def test_a_cleared_queue_returns_every_request(levels: list[int], now: float) -> None:
    queue = PriorityQueue[str](_levels({1: REJECTING, 2: DELAYING, 3: LevelPolicy()}))
    entries = [_added(queue, str(n), priority=level) for n, level in enumerate(levels)]
    rejected = queue.expire(now)
    assert sorted(queue.clear() + rejected) == sorted(entry.item for entry in entries)
    assert (len(queue), queue.next_expiry(), _order(queue)) == (0, inf, "")
    assert not any(entry.waiting for entry in entries)


def test_timeouts_of_requests_that_have_left_take_no_room() -> None:
    """Nearly all leave before their time, which may be far."""
    queue = PriorityQueue[int](PriorityLevels(default_policy=LevelPolicy(timeout=1e6)))
    for number in range(1000):
        entry = Entry(number, 1, None, float(number))
        assert queue.add(entry)
        queue.remove(entry)
    assert len(queue._expiring) <= 18
