"""Batches of requests of mixed lengths."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduling.batching.batch_queue import BatchPolicy, BatchQueue
from scheduling.batching.queue.items import Item, emptied

LENGTHS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), max_size=30)


def _long(policy: BatchPolicy, *requests: tuple[int, int], now: float = 0.0) -> BatchQueue[Item]:
    """A queue of requests by rows and length."""
    queue = BatchQueue[Item](policy)
    for rows, length in requests:
        queue.push(Item(rows), rows, "a", now, length=length)
    return queue


def test_a_budget_of_elements_bounds_rows_times_the_longest() -> None:
    policy = BatchPolicy(8, max_elements=12)
    batches = emptied(_long(policy, (1, 2), (1, 4), (1, 4), (1, 1), (1, 6)))
    assert [len(batch) for batch in batches] == [3, 2]


def test_a_budget_bounds_the_sum_where_nothing_is_padded() -> None:
    policy = BatchPolicy(8, max_elements=12, padded=False)
    batches = emptied(_long(policy, (1, 1), (1, 1), (1, 9), (1, 1), (1, 2)))
    assert [len(batch) for batch in batches] == [4, 1]


def test_a_request_over_the_budget_leaves_alone() -> None:
    batches = emptied(_long(BatchPolicy(8, max_elements=5), (1, 2), (1, 9), (1, 2)))
    assert [len(batch) for batch in batches] == [1, 1, 1]


def test_a_batch_that_has_used_up_its_budget_does_not_wait() -> None:
    queue = _long(BatchPolicy(8, max_queue_delay=9.0, max_elements=6), (1, 3), (1, 2))
    assert queue.due() == -inf


def test_requests_of_one_bucket_are_batched_past_others() -> None:
    lengths = (3, 5, 4, 8, 9, 0)
    queue = _long(BatchPolicy(4, buckets=(4, 8)), *[(1, length) for length in lengths])
    names = [[item.number for item in batch] for batch in emptied(queue)]
    first = names[0][0]
    assert [[n - first for n in batch] for batch in names] == [[0, 2, 5], [1, 3], [4]]


def test_a_whole_batch_of_one_bucket_does_not_wait_for_the_oldest_of_another() -> None:
    queue = BatchQueue[str](BatchPolicy(2, max_queue_delay=5.0, buckets=(4,)))
    for name, length, now in (("a", 1, 0.0), ("b", 9, 1.0), ("c", 9, 2.0)):
        assert queue.due() in (inf, 5.0)
        queue.push(name, 1, "", now, length=length)
    assert queue.due() == -inf
    assert queue.pop(2.0) == ["b", "c"]
    assert (queue.due(), queue.pop(5.0)) == (5.0, ["a"])


def test_the_oldest_waits_for_whole_batches_of_others_no_longer_than_the_delay() -> None:
    queue = BatchQueue[str](BatchPolicy(2, max_queue_delay=5.0, buckets=(4,)))
    for name, length in (("a", 1), ("b", 9), ("c", 9), ("d", 9), ("e", 9)):
        queue.push(name, 1, "", 0.0, length=length)
    assert [queue.pop(4.0), queue.pop(5.0), queue.pop(5.0)] == [["b", "c"], ["a"], ["d", "e"]]


def test_batches_are_not_searched_for_in_the_whole_queue() -> None:
    """Beyond what is looked at, a whole batch of another bucket goes unseen."""
    queue = BatchQueue[int](BatchPolicy(2, max_queue_delay=5.0, buckets=(1, 2)))
    for number in range(100):
        queue.push(number, 1, str(number), 0.0, length=1)
    queue.pop(0.0)
    queue.push(100, 1, "", 0.0, length=2)
    queue.push(101, 1, "", 0.0, length=2)
    assert queue.pop(0.0) == [1]


@given(LENGTHS, st.integers(1, 20), st.booleans(), st.sampled_from([(), (4,), (2, 5, 7)]))
def test_lengths_lose_no_request_and_keep_the_budget(
    requests: list[tuple[int, int]], budget: int, padded: bool, buckets: tuple[int, ...]
) -> None:
    policy = BatchPolicy(8, max_elements=budget, padded=padded, buckets=buckets)
    queue = BatchQueue[tuple[int, int, int, int]](policy)
    for number, (rows, length) in enumerate(requests):
        item = (number, rows, length, sum(length > bound for bound in buckets))
        queue.push(item, rows, "a", 0.0, length=length)
    batches = []
    while batch := queue.pop(0.0):
        batches.append(batch)
    assert sorted(n for batch in batches for n, *_ in batch) == list(range(len(requests)))
    assert all(len({item[3] for item in batch}) == 1 for batch in batches)
    assert all([n for n, *_ in batch] == sorted(n for n, *_ in batch) for batch in batches)
    # The oldest is always in the next batch, so no bucket starves.
    waiting = set(range(len(requests)))
    for batch in batches:
        assert batch[0][0] == min(waiting)
        waiting -= {n for n, *_ in batch}
    for batch in batches:
        longest, rows = max(i[2] for i in batch), sum(i[1] for i in batch)
        cost = longest * rows if padded else sum(i[1] * i[2] for i in batch)
        assert len(batch) == 1 or cost <= budget
