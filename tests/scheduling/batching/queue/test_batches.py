"""When a batch is due, and its requests: pure decisions, with plain numbers for a clock."""

from __future__ import annotations

from math import inf

import pytest

from penstock.scheduling.batching.batch_queue import BatchPolicy, BatchQueue
from scheduling.batching.queue.items import Item, emptied, items_of, queue_of, rows_of

# -- when ------------------------------------------------------------------------------------------


def test_an_empty_queue_is_never_due() -> None:
    queue = queue_of(BatchPolicy(4), [])
    assert queue.due() == inf
    assert queue.pop(0.0) == []


def test_without_a_delay_whatever_waits_is_due() -> None:
    assert queue_of(BatchPolicy(4), items_of(1), now=7.0).due() <= 7.0


@pytest.mark.contract("D-04")
def test_the_oldest_request_sets_the_deadline() -> None:
    """A later arrival does not postpone a batch."""
    queue = BatchQueue[Item](BatchPolicy(4, max_queue_delay=2.0))
    queue.push(Item(), 1, "a", now=10.0)
    queue.push(Item(), 1, "a", now=11.5)
    assert queue.due() == 12.0


def test_an_oldest_request_that_left_sets_no_deadline() -> None:
    queue = BatchQueue[Item](BatchPolicy(4, max_queue_delay=2.0))
    entry = queue.push(Item(), 1, "a", now=10.0)
    queue.push(Item(), 1, "a", now=11.5)
    assert queue.due() == 12.0
    assert entry is not None
    queue.leave(entry)
    assert queue.due() == 13.5


@pytest.mark.parametrize(
    "items",
    [
        items_of(4),
        items_of(1, 3),
        items_of(2, 1, 1, 1),
        items_of(3, 2),
        items_of(5),
        [Item(1, "a"), Item(1, "b")],
    ],
)
def test_a_batch_that_cannot_grow_is_due_at_once(items: list[Item]) -> None:
    assert queue_of(BatchPolicy(4, max_queue_delay=2.0), items).due() == -inf


def test_a_preferred_size_is_due_at_once() -> None:
    policy = BatchPolicy(8, frozenset({2, 4}), max_queue_delay=2.0)
    assert queue_of(policy, items_of(1, 1)).due() == -inf


def test_less_than_a_preferred_size_waits() -> None:
    policy = BatchPolicy(8, frozenset({4}), max_queue_delay=2.0)
    assert queue_of(policy, items_of(1, 2)).due() == 2.0


@pytest.mark.contract("D-05")
@pytest.mark.parametrize("preferred", [{4}, {2, 4}, {1}])
@pytest.mark.parametrize("rows", [5, 6, 7])
def test_a_request_beyond_every_preferred_size_is_due_at_once(
    rows: int, preferred: set[int]
) -> None:
    policy = BatchPolicy(8, frozenset(preferred), max_queue_delay=2.0)
    assert queue_of(policy, items_of(rows)).due() == -inf
    queue = queue_of(policy, items_of(1, rows))
    assert rows_of(queue.pop(now=0.0)) == 1
    assert queue.due() == -inf


@pytest.mark.contract("D-05")
def test_a_request_between_preferred_sizes_waits_for_the_next() -> None:
    policy = BatchPolicy(8, frozenset({2, 6}), max_queue_delay=2.0)
    assert queue_of(policy, items_of(3)).due() == 2.0
    assert queue_of(policy, items_of(5)).due() == 2.0


def test_a_request_that_would_skip_every_preferred_size_closes_the_batch() -> None:
    policy = BatchPolicy(8, frozenset({4}), max_queue_delay=2.0)
    queue = queue_of(policy, items_of(3, 3))
    assert queue.due() == -inf
    assert [rows_of(batch) for batch in emptied(queue)] == [3, 3]


def test_a_preferred_size_that_can_be_formed_leaves_out_what_would_miss_the_next() -> None:
    policy = BatchPolicy(8, frozenset({2, 4}), max_queue_delay=2.0)
    assert rows_of(queue_of(policy, items_of(2, 1, 3)).pop(now=0.0)) == 2


# -- what ------------------------------------------------------------------------------------------


@pytest.mark.contract("D-05")
def test_a_request_is_never_split() -> None:
    assert [rows_of(b) for b in emptied(queue_of(BatchPolicy(4), items_of(3, 3, 1)))] == [3, 4]


def test_a_request_larger_than_every_batch_leaves_alone() -> None:
    assert [rows_of(b) for b in emptied(queue_of(BatchPolicy(4), items_of(1, 9, 1)))] == [1, 9, 1]


@pytest.mark.contract("D-06")
def test_another_shape_closes_the_batch_and_begins_the_next() -> None:
    items = [Item(1, "a"), Item(1, "b"), Item(1, "b"), Item(1, "a")]
    batches = emptied(queue_of(BatchPolicy(8), items))
    assert [[item.signature for item in batch] for batch in batches] == [["a"], ["b", "b"], ["a"]]


def test_a_preferred_size_leaves_the_rest_waiting_until_the_delay_is_up() -> None:
    policy = BatchPolicy(8, frozenset({4}), max_queue_delay=2.0)
    items = items_of(1, 1, 1, 1, 1, 1)
    assert rows_of(queue_of(policy, items).pop(now=1.9)) == 4
    assert rows_of(queue_of(policy, items).pop(now=2.0)) == 6


def test_without_a_delay_preferred_sizes_are_kept() -> None:
    policy = BatchPolicy(8, frozenset({4}))
    assert [rows_of(b) for b in emptied(queue_of(policy, items_of(*[1] * 6)), now=99.0)] == [4, 2]


def test_a_cancelled_request_does_not_separate_its_neighbours() -> None:
    items = [Item(1, "a"), Item(8, "b", abandoned=True), Item(1, "a")]
    (batch,) = emptied(queue_of(BatchPolicy(4), items))
    assert batch == [items[0], items[2]]


def test_a_cleared_queue_returns_everything_and_is_empty() -> None:
    items = items_of(1, 2, 3)
    queue = queue_of(BatchPolicy(8), items)
    assert queue.clear() == items
    assert (len(queue), queue.due()) == (0, inf)
