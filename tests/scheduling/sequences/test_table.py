"""Assignment of slots: by example, and by a state machine of random operations."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harness.examples import examples
from penstock.scheduling.sequences.table import LiveSequence, SequenceTable, Slot


def make_table(instances: int = 1, slots: int = 1) -> SequenceTable[str]:
    return SequenceTable(Slot(n, at) for n in range(slots) for at in range(instances))


def begun(table: SequenceTable[str], id: str, *items: str, end: bool = False) -> LiveSequence[str]:
    sequence = table.open(id, 0.0)
    for item in items:
        table.push(sequence, item, 0.0, end=end and item == items[-1])
    return sequence


@pytest.mark.contract("S-01", "S-06")
def test_sequences_spread_over_the_instances_before_they_share_one() -> None:
    table = make_table(instances=2, slots=2)
    slots = [begun(table, id).slot for id in "abcd"]
    assert slots == [Slot(0, 0), Slot(0, 1), Slot(1, 0), Slot(1, 1)]


@pytest.mark.contract("S-07")
def test_the_oldest_sequence_of_the_backlog_gets_the_first_free_slot() -> None:
    table = make_table()
    first = begun(table, "a", "a1", end=True)
    second, third = begun(table, "b", "b1"), begun(table, "c", "c1")
    assert table.take_next(first) == "a1"
    assert table.done(first, 1.0) == [second]
    assert (second.slot, third.slot) == (Slot(0, 0), None)


def test_a_sequence_executes_one_request_at_a_time() -> None:
    table = make_table()
    sequence = begun(table, "a", "a1", "a2")
    table.take_next(sequence)
    assert not sequence.ready
    table.done(sequence, 1.0)
    assert table.take_next(sequence) == "a2"


def test_an_id_is_free_after_the_last_request_while_the_slot_is_not() -> None:
    table = make_table()
    first = begun(table, "a", "a1", end=True)
    second = begun(table, "a", "a2")
    assert (table.find("a"), first.slot, second.slot) == (second, Slot(0, 0), None)


def test_a_request_that_is_put_back_comes_first() -> None:
    table = make_table()
    sequence = begun(table, "a", "a1", "a2")
    table.take_next(sequence)
    table.put_back(sequence, 1.0)
    assert [*sequence.waiting] == ["a1", "a2"]


@pytest.mark.contract("S-10")
def test_a_cut_leaves_what_came_before_and_frees_the_id() -> None:
    table = make_table()
    sequence = begun(table, "a", "a1", "a2", "a3")
    assert table.cut(sequence, "a2") == (["a2", "a3"], [])
    assert ([*sequence.waiting], table.find("a"), sequence.slot) == (["a1"], None, Slot(0, 0))


def test_a_sequence_of_the_backlog_that_is_cut_is_passed_over() -> None:
    table = make_table()
    first = begun(table, "a", "a1", end=True)
    gone, next_one = begun(table, "b", "b1"), begun(table, "c", "c1")
    table.cut(gone)
    table.take_next(first)
    assert table.done(first, 1.0) == [next_one]


@pytest.mark.contract("S-09")
def test_an_idle_sequence_gives_up_its_slot() -> None:
    table = make_table()
    idle, waiting = begun(table, "a"), begun(table, "b", "b1")
    assert table.untouched_since() == 0.0
    assert table.reap(0.0, 5.0) == [waiting]
    assert (table.find("a"), idle.slot) == (None, None)


def test_a_sequence_with_open_requests_is_not_idle() -> None:
    table = make_table()
    sequence = begun(table, "a", "a1")
    assert table.reap(3.0, 5.0) == []
    assert (table.find("a"), table.untouched_since()) == (sequence, 5.0)


@pytest.mark.contract("S-08")
def test_the_earliest_timeout_of_a_waiting_sequence_ends_it() -> None:
    table = make_table()
    begun(table, "a", "a1")
    waiting = table.open("b", 0.0)
    for item, expires in (("b1", 9.0), ("b2", 4.0), ("b3", inf)):
        table.push(waiting, item, 0.0, end=False, expires=expires)
    assert table.next_expiry() == 4.0
    assert table.expired(4.0) == ["b1", "b2", "b3"]
    assert (table.find("b"), table.next_expiry()) == (None, inf)


def test_a_sequence_with_a_slot_does_not_expire() -> None:
    table = make_table()
    first, second = begun(table, "a", "a1", end=True), table.open("b", 0.0)
    table.push(second, "b1", 0.0, end=False, expires=4.0)
    table.take_next(first)
    table.done(first, 1.0)
    assert (second.slot, table.expired(5.0)) == (Slot(0, 0), [])


def test_slots_of_an_instance_that_is_down_are_not_given() -> None:
    table = make_table(instances=2)
    lost, kept = begun(table, "a", "a1"), begun(table, "b", "b1")
    assert table.lose(0) == [(lost, ["a1"])]
    waiting = begun(table, "c", "c1")
    assert (kept.slot, waiting.slot) == (Slot(0, 1), None)
    assert table.restore(0) == [waiting]


@pytest.mark.contract("S-23")
def test_an_instance_that_is_to_leave_keeps_its_sequences_only() -> None:
    table = make_table()
    staying = begun(table, "a", "a1", end=True)
    waiting = begun(table, "b", "b1")
    table.close(0)
    table.take_next(staying)
    assert (staying.slot, table.vacant(0)) == (Slot(0, 0), False)
    assert (table.done(staying, 1.0), table.vacant(0)) == ([], True)
    table.add([Slot(0, 1)])
    assert table.restore(1) == [waiting]


class Machine(RuleBasedStateMachine):
    """Does what clients, instances and clocks may do, and keeps its own account of it."""

    ids = st.sampled_from("abcdef")

    def __init__(self) -> None:
        super().__init__()
        self.table: SequenceTable[int] = SequenceTable(
            Slot(n, at) for n in range(2) for at in range(2)
        )
        self.now = 0.0
        self.number = 0
        self.open: set[int] = set()
        self.owner: dict[int, LiveSequence[int]] = {}
        self.places: dict[LiveSequence[int], Slot] = {}
        self.seen: dict[LiveSequence[int], list[int]] = {}
        self.down: set[int] = set()
        self.present = {0, 1}
        self.leaving: set[int] = set()
        self.latest = 1

    @rule(id=ids, end=st.booleans(), timeout=st.sampled_from([0.5, inf]))
    def a_request_comes(self, id: str, end: bool, timeout: float) -> None:
        sequence = self.table.find(id) or self.table.open(id, self.now)
        self.number += 1
        self.owner[self.number] = sequence
        self.open.add(self.number)
        expires = self.now + timeout
        self.table.push(sequence, self.number, self.now, end=end, expires=expires)

    @rule(pick=st.randoms(use_true_random=False))
    def a_request_is_taken(self, pick: object) -> None:
        if ready := [s for s in self.table.sequences if s.ready]:
            sequence = ready[self.number % len(ready)]
            item = self.table.take_next(sequence)
            self.seen.setdefault(sequence, []).append(item)

    @rule()
    def a_request_is_done(self) -> None:
        if taken := [s for s in self.table.sequences if s.taken is not None]:
            sequence = taken[self.number % len(taken)]
            assert sequence.taken is not None
            self.open.remove(sequence.taken)
            self.table.done(sequence, self.now)

    @rule()
    def a_request_is_put_back(self) -> None:
        if taken := [s for s in self.table.sequences if s.taken is not None]:
            self.seen[taken[0]].pop()
            self.table.put_back(taken[0], self.now)

    @rule(data=st.data())
    def a_client_leaves(self, data: st.DataObject) -> None:
        waiting = [i for s in self.table.sequences for i in s.waiting]
        if waiting:
            item = data.draw(st.sampled_from(waiting))
            dropped, _ = self.table.cut(self.owner[item], item)
            assert dropped[0] == item
            self.open -= set(dropped)

    @rule(seconds=st.sampled_from([0.1, 1.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.open -= set(self.table.expired(self.now))
        self.table.reap(self.now - 0.7, self.now)

    @precondition(lambda self: len(self.down) < 2)
    @rule(instance=st.integers(0, 4))
    def an_instance_goes_down(self, instance: int) -> None:
        if instance in self.present - self.down:
            self.down.add(instance)
            for sequence, dropped in self.table.lose(instance):
                assert sequence.ended
                self.open -= set(dropped)

    @rule(instance=st.integers(0, 4))
    def an_instance_comes_back(self, instance: int) -> None:
        if instance in self.down - self.leaving:
            self.down.remove(instance)
            self.table.restore(instance)

    @precondition(lambda self: self.latest < 4)
    @rule()
    def an_instance_joins(self) -> None:
        self.latest += 1
        self.present.add(self.latest)
        self.down.add(self.latest)
        self.table.add(Slot(n, self.latest) for n in range(2))

    @precondition(lambda self: len(self.present - self.leaving) > 1)
    @rule(instance=st.integers(0, 4))
    def an_instance_is_to_leave(self, instance: int) -> None:
        if instance in self.present:
            self.leaving.add(instance)
            self.table.close(instance)

    @rule()
    def instances_leave(self) -> None:
        for instance in [i for i in self.leaving & self.present if self.table.vacant(i)]:
            self.present.remove(instance)
            self.table.remove(instance)

    @invariant()
    def no_request_is_lost_or_doubled(self) -> None:
        held = [i for s in self.table.sequences for i in (*s.waiting, s.taken) if i is not None]
        assert sorted(held) == sorted(self.open)

    @invariant()
    def each_sequence_sees_its_requests_in_order_in_one_slot(self) -> None:
        for sequence, items in self.seen.items():
            assert items == sorted(items)
            assert all(self.owner[item] is sequence for item in items)
        for sequence in self.table.sequences:
            if sequence.slot is not None:
                assert self.places.setdefault(sequence, sequence.slot) == sequence.slot

    @invariant()
    def no_slot_leaks(self) -> None:
        """A sequence waits for a slot only while all are held by sequences that need them."""
        holders = [s for s in self.table.sequences if s.slot is not None]
        assert len({s.slot for s in holders}) == len(holders)
        for holder in holders:
            assert not holder.ended or holder.waiting or holder.taken is not None
        given = self.present - self.down - self.leaving
        usable = [s for s in holders if s.slot is not None and s.slot.instance in given]
        assert {s.slot.instance for s in holders if s.slot is not None} <= self.present
        if any(s.slot is None for s in self.table.sequences):
            assert len(usable) == 2 * len(given)


Machine.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
TestMachine = Machine.TestCase
