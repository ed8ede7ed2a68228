"""Invariants of every queue, with plain numbers for a clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduling.batching.batch_queue import BatchPolicy, BatchQueue
from scheduling.batching.queue.items import (
    ITEMS,
    NOW,
    WANTED,
    Item,
    emptied,
    leave,
    policies,
    queue_of,
    rows_of,
)


@given(policies(), ITEMS, NOW)
def test_every_wanted_request_leaves_exactly_once_and_in_order(
    policy: BatchPolicy, items: list[Item], now: float
) -> None:
    left = [item for batch in emptied(queue_of(policy, items), now) for item in batch]
    assert left == [item for item in items if not item.abandoned]


@given(policies(), ITEMS, NOW)
def test_a_batch_is_never_too_large_unless_one_request_alone_is(
    policy: BatchPolicy, items: list[Item], now: float
) -> None:
    batches = emptied(queue_of(policy, items), now)
    assert all(len(b) == 1 or rows_of(b) <= policy.max_batch_size for b in batches)


@given(policies(), ITEMS, NOW)
def test_a_batch_has_one_signature(policy: BatchPolicy, items: list[Item], now: float) -> None:
    batches = emptied(queue_of(policy, items), now)
    assert all(len({item.signature for item in batch}) == 1 for batch in batches)


@pytest.mark.contract("D-03")
@given(policies(), WANTED)
def test_the_largest_preferred_size_that_can_be_formed_is_used(
    policy: BatchPolicy, items: list[Item]
) -> None:
    """Of the batches that could leave now, in order and alike, the delay not being up."""
    queue = queue_of(policy, items)
    batch = queue.pop(now=0.0)
    fitting = [
        items[:n]
        for n in range(1, len(items) + 1)
        if len({item.signature for item in items[:n]}) == 1
    ]
    sizes = {rows_of(b) for b in fitting if rows_of(b) <= policy.max_batch_size} & policy.sizes
    if sizes:
        assert rows_of(batch) == max(sizes)


@pytest.mark.contract("D-05")
@given(policies(), WANTED.filter(bool))
def test_a_batch_that_is_overdue_cannot_be_larger(policy: BatchPolicy, items: list[Item]) -> None:
    policy = BatchPolicy(policy.max_batch_size, policy.preferred, max_queue_delay=5.0)
    batch = queue_of(policy, items).pop(now=5.0)
    following = items[len(batch) : len(batch) + 1]
    assert all(
        item.signature != batch[0].signature or rows_of(batch) + item.rows > policy.max_batch_size
        for item in following
    )


@pytest.mark.contract("D-04")
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


@pytest.mark.contract("D-15")
@given(policies(), WANTED, st.data())
def test_whoever_leaves_while_waiting_never_executes(
    policy: BatchPolicy, items: list[Item], data: st.DataObject
) -> None:
    queue = queue_of(policy, items)
    leaving = data.draw(st.lists(st.sampled_from(items), unique=True)) if items else []
    queue.due()
    for item in leaving:
        leave(queue, item)
    left = [item for batch in emptied(queue) for item in batch]
    assert left == [item for item in items if item not in leaving]


@given(policies(), ITEMS)
def test_asking_when_changes_nothing(policy: BatchPolicy, items: list[Item]) -> None:
    asked, other = queue_of(policy, items), queue_of(policy, items)
    assert asked.due() == asked.due()
    assert emptied(asked) == emptied(other)
