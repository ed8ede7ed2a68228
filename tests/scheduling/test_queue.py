"""What to batch, and when: pure decisions, so plain numbers for a clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduling.queue import BatchPolicy, BatchQueue


@dataclass(eq=False)
class Item:
    """A request: how many rows it has, and what it can be batched with."""

    rows: int = 1
    signature: str = "a"
    abandoned: bool = False
    number: int = field(default_factory=count().__next__)


def _queue(policy: BatchPolicy, items: list[Item], now: float = 0.0) -> BatchQueue[Item]:
    queue = BatchQueue[Item](policy)
    for item in items:
        queue.push(item, item.rows, item.signature, now)
    return queue


def _rows(batch: list[Item]) -> int:
    return sum(item.rows for item in batch)


def _of(*rows: int) -> list[Item]:
    return [Item(n) for n in rows]


def _emptied(queue: BatchQueue[Item], now: float = 0.0) -> list[list[Item]]:
    """Every batch until nothing waits."""
    batches = []
    while batch := queue.pop(now):
        batches.append(batch)
    return batches


@st.composite
def policies(draw: st.DrawFn) -> BatchPolicy:
    largest = draw(st.integers(1, 8))
    preferred = draw(st.frozensets(st.integers(1, largest), max_size=3))
    return BatchPolicy(largest, preferred, draw(st.sampled_from([0.0, 5.0])))


ROWS = st.sampled_from([1, 1, 1, 2, 2, 3, 4, 9])
SIGNATURES = st.sampled_from("aaab")
ITEMS = st.lists(st.builds(Item, ROWS, SIGNATURES, st.sampled_from([False, False, True])))
WANTED = st.lists(st.builds(Item, ROWS, SIGNATURES))
NOW = st.sampled_from([0.0, 1.0, 99.0])


# -- properties ----------------------------------------------------------------------------------


@given(policies(), ITEMS, NOW)
def test_every_wanted_request_leaves_exactly_once_and_in_order(
    policy: BatchPolicy, items: list[Item], now: float
) -> None:
    left = [item for batch in _emptied(_queue(policy, items), now) for item in batch]
    assert left == [item for item in items if not item.abandoned]


@given(policies(), ITEMS, NOW)
def test_a_batch_is_never_too_large_unless_one_request_alone_is(
    policy: BatchPolicy, items: list[Item], now: float
) -> None:
    batches = _emptied(_queue(policy, items), now)
    assert all(len(b) == 1 or _rows(b) <= policy.max_batch_size for b in batches)


@given(policies(), ITEMS, NOW)
def test_a_batch_has_one_signature(policy: BatchPolicy, items: list[Item], now: float) -> None:
    batches = _emptied(_queue(policy, items), now)
    assert all(len({item.signature for item in batch}) == 1 for batch in batches)


@given(policies(), WANTED)
def test_the_largest_preferred_size_that_can_be_formed_is_used(
    policy: BatchPolicy, items: list[Item]
) -> None:
    """Of the batches that could leave now, in order and alike, the delay not being up."""
    queue = _queue(policy, items)
    batch = queue.pop(now=0.0)
    fitting = [
        items[:n]
        for n in range(1, len(items) + 1)
        if len({item.signature for item in items[:n]}) == 1
    ]
    sizes = {_rows(b) for b in fitting if _rows(b) <= policy.max_batch_size} & policy.sizes
    if sizes:
        assert _rows(batch) == max(sizes)


@given(policies(), WANTED.filter(bool))
def test_a_batch_that_is_overdue_cannot_be_larger(policy: BatchPolicy, items: list[Item]) -> None:
    policy = BatchPolicy(policy.max_batch_size, policy.preferred, max_queue_delay=5.0)
    batch = _queue(policy, items).pop(now=5.0)
    following = items[len(batch) : len(batch) + 1]
    assert all(
        item.signature != batch[0].signature or _rows(batch) + item.rows > policy.max_batch_size
        for item in following
    )


@given(policies(), st.lists(st.tuples(st.floats(0, 9), st.integers(1, 4)), min_size=1))
def test_nobody_waits_longer_than_the_delay(
    policy: BatchPolicy, arrivals: list[tuple[float, int]]
) -> None:
    """Whoever is first leaves when the next batch is due, and that is never later."""
    arrivals.sort()
    queue = BatchQueue[Item](policy)
    for when, rows in arrivals:
        queue.push(Item(rows), rows, "a", when)
    waits = []
    while len(queue):
        first = arrivals[-len(queue)][0]
        due = max(queue.due(), first)
        waits.append(due - first)
        queue.pop(due)
    assert max(waits) <= policy.max_queue_delay + 1e-9


@given(policies(), WANTED, st.data())
def test_whoever_leaves_while_waiting_never_executes(
    policy: BatchPolicy, items: list[Item], data: st.DataObject
) -> None:
    queue = _queue(policy, items)
    leaving = data.draw(st.lists(st.sampled_from(items), unique=True)) if items else []
    queue.due()
    for item in leaving:
        item.abandoned = True
    left = [item for batch in _emptied(queue) for item in batch]
    assert left == [item for item in items if item not in leaving]


@given(policies(), ITEMS)
def test_asking_when_changes_nothing(policy: BatchPolicy, items: list[Item]) -> None:
    asked, other = _queue(policy, items), _queue(policy, items)
    assert asked.due() == asked.due()
    assert _emptied(asked) == _emptied(other)


# -- when ----------------------------------------------------------------------------------------


def test_an_empty_queue_is_never_due() -> None:
    queue = _queue(BatchPolicy(4), [])
    assert queue.due() == inf
    assert queue.pop(0.0) == []


def test_without_a_delay_whatever_waits_is_due() -> None:
    assert _queue(BatchPolicy(4), _of(1), now=7.0).due() <= 7.0


def test_the_oldest_request_sets_the_deadline() -> None:
    """A later arrival does not postpone a batch."""
    queue = BatchQueue[Item](BatchPolicy(4, max_queue_delay=2.0))
    queue.push(Item(), 1, "a", now=10.0)
    queue.push(Item(), 1, "a", now=11.5)
    assert queue.due() == 12.0


def test_an_oldest_request_that_left_sets_no_deadline() -> None:
    queue = BatchQueue[Item](BatchPolicy(4, max_queue_delay=2.0))
    queue.push(Item(abandoned=True), 1, "a", now=10.0)
    queue.push(Item(), 1, "a", now=11.5)
    assert queue.due() == 13.5


@pytest.mark.parametrize(
    "items",
    [
        _of(4),
        _of(1, 3),
        _of(2, 1, 1, 1),
        _of(3, 2),
        _of(5),
        [Item(1, "a"), Item(1, "b")],
    ],
)
def test_a_batch_that_cannot_grow_is_due_at_once(items: list[Item]) -> None:
    assert _queue(BatchPolicy(4, max_queue_delay=2.0), items).due() == -inf


def test_a_preferred_size_is_due_at_once() -> None:
    policy = BatchPolicy(8, frozenset({2, 4}), max_queue_delay=2.0)
    assert _queue(policy, _of(1, 1)).due() == -inf


def test_less_than_a_preferred_size_waits() -> None:
    policy = BatchPolicy(8, frozenset({4}), max_queue_delay=2.0)
    assert _queue(policy, _of(1, 2)).due() == 2.0


def test_a_request_that_would_skip_every_preferred_size_closes_the_batch() -> None:
    policy = BatchPolicy(8, frozenset({4}), max_queue_delay=2.0)
    queue = _queue(policy, _of(3, 3))
    assert queue.due() == -inf
    assert [_rows(batch) for batch in _emptied(queue)] == [3, 3]


def test_a_preferred_size_that_can_be_formed_leaves_out_what_would_miss_the_next() -> None:
    policy = BatchPolicy(8, frozenset({2, 4}), max_queue_delay=2.0)
    assert _rows(_queue(policy, _of(2, 1, 3)).pop(now=0.0)) == 2


# -- what ----------------------------------------------------------------------------------------


def test_a_request_is_never_split() -> None:
    assert [_rows(b) for b in _emptied(_queue(BatchPolicy(4), _of(3, 3, 1)))] == [3, 4]


def test_a_request_larger_than_every_batch_leaves_alone() -> None:
    assert [_rows(b) for b in _emptied(_queue(BatchPolicy(4), _of(1, 9, 1)))] == [1, 9, 1]


def test_another_shape_closes_the_batch_and_begins_the_next() -> None:
    items = [Item(1, "a"), Item(1, "b"), Item(1, "b"), Item(1, "a")]
    batches = _emptied(_queue(BatchPolicy(8), items))
    assert [[item.signature for item in batch] for batch in batches] == [["a"], ["b", "b"], ["a"]]


def test_a_preferred_size_leaves_the_rest_waiting_until_the_delay_is_up() -> None:
    policy = BatchPolicy(8, frozenset({4}), max_queue_delay=2.0)
    items = _of(1, 1, 1, 1, 1, 1)
    assert _rows(_queue(policy, items).pop(now=1.9)) == 4
    assert _rows(_queue(policy, items).pop(now=2.0)) == 6


def test_without_a_delay_preferred_sizes_are_kept() -> None:
    policy = BatchPolicy(8, frozenset({4}))
    assert [_rows(b) for b in _emptied(_queue(policy, _of(*[1] * 6)), now=99.0)] == [4, 2]


def test_a_neighbour_who_left_does_not_part_those_beside_it() -> None:
    items = [Item(1, "a"), Item(8, "b", abandoned=True), Item(1, "a")]
    (batch,) = _emptied(_queue(BatchPolicy(4), items))
    assert batch == [items[0], items[2]]


def test_a_cleared_queue_gives_back_everything_and_is_empty() -> None:
    items = _of(1, 2, 3)
    queue = _queue(BatchPolicy(8), items)
    assert queue.clear() == items
    assert (len(queue), queue.due()) == (0, inf)
