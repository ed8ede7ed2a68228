"""What to batch, and when: pure decisions, so plain numbers for a clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduling.priority import LevelPolicy, PriorityLevels
from penstock.scheduling.queue import BatchPolicy, BatchQueue, Entry


@dataclass(eq=False)
class Item:
    """A request: how many rows it has, and what it can be batched with."""

    rows: int = 1
    signature: str = "a"
    abandoned: bool = False
    number: int = field(default_factory=count().__next__)
    entry: Entry[Item] | None = None


def _queue(policy: BatchPolicy, items: list[Item], now: float = 0.0) -> BatchQueue[Item]:
    queue = BatchQueue[Item](policy)
    for item in items:
        item.entry = queue.push(item, item.rows, item.signature, now)
    for item in items:
        if item.abandoned:
            _leave(queue, item)
    return queue


def _leave(queue: BatchQueue[Item], item: Item) -> None:
    assert item.entry is not None
    queue.leave(item.entry)


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


@pytest.mark.contract("D-03")
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


@pytest.mark.contract("D-05")
@given(policies(), WANTED.filter(bool))
def test_a_batch_that_is_overdue_cannot_be_larger(policy: BatchPolicy, items: list[Item]) -> None:
    policy = BatchPolicy(policy.max_batch_size, policy.preferred, max_queue_delay=5.0)
    batch = _queue(policy, items).pop(now=5.0)
    following = items[len(batch) : len(batch) + 1]
    assert all(
        item.signature != batch[0].signature or _rows(batch) + item.rows > policy.max_batch_size
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
    queue = _queue(policy, items)
    leaving = data.draw(st.lists(st.sampled_from(items), unique=True)) if items else []
    queue.due()
    for item in leaving:
        _leave(queue, item)
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


@pytest.mark.contract("D-05")
def test_a_request_is_never_split() -> None:
    assert [_rows(b) for b in _emptied(_queue(BatchPolicy(4), _of(3, 3, 1)))] == [3, 4]


def test_a_request_larger_than_every_batch_leaves_alone() -> None:
    assert [_rows(b) for b in _emptied(_queue(BatchPolicy(4), _of(1, 9, 1)))] == [1, 9, 1]


@pytest.mark.contract("D-06")
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


# -- lengths -------------------------------------------------------------------------------------

LENGTHS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), max_size=30)


def _long(policy: BatchPolicy, *requests: tuple[int, int], now: float = 0.0) -> BatchQueue[Item]:
    """A queue of requests by rows and length."""
    queue = BatchQueue[Item](policy)
    for rows, length in requests:
        queue.push(Item(rows), rows, "a", now, length=length)
    return queue


def test_a_budget_of_elements_bounds_rows_times_the_longest() -> None:
    policy = BatchPolicy(8, max_elements=12)
    batches = _emptied(_long(policy, (1, 2), (1, 4), (1, 4), (1, 1), (1, 6)))
    assert [len(batch) for batch in batches] == [3, 2]


def test_a_budget_bounds_the_sum_where_nothing_is_padded() -> None:
    policy = BatchPolicy(8, max_elements=12, padded=False)
    batches = _emptied(_long(policy, (1, 1), (1, 1), (1, 9), (1, 1), (1, 2)))
    assert [len(batch) for batch in batches] == [4, 1]


def test_a_request_over_the_budget_leaves_alone() -> None:
    batches = _emptied(_long(BatchPolicy(8, max_elements=5), (1, 2), (1, 9), (1, 2)))
    assert [len(batch) for batch in batches] == [1, 1, 1]


def test_a_batch_that_has_used_up_its_budget_does_not_wait() -> None:
    queue = _long(BatchPolicy(8, max_queue_delay=9.0, max_elements=6), (1, 3), (1, 2))
    assert queue.due() == -inf


def test_requests_of_one_bucket_are_batched_past_others() -> None:
    lengths = (3, 5, 4, 8, 9, 0)
    queue = _long(BatchPolicy(4, buckets=(4, 8)), *[(1, length) for length in lengths])
    names = [[item.number for item in batch] for batch in _emptied(queue)]
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
def test_lengths_lose_nobody_and_keep_the_budget(
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


# -- priorities ----------------------------------------------------------------------------------


def test_a_batch_may_hold_several_priorities_in_their_order() -> None:
    queue = BatchQueue[str](BatchPolicy(3), PriorityLevels(count=2, default=2))
    for name, priority in (("a", 2), ("b", 1), ("c", 2), ("d", 1)):
        queue.push(name, 1, "", 0.0, priority=priority)
    assert [queue.pop(0.0), queue.pop(0.0)] == [["b", "d", "a"], ["c"]]


def test_a_more_urgent_request_joins_a_batch_that_waits() -> None:
    queue = BatchQueue[str](BatchPolicy(2, max_queue_delay=5.0), PriorityLevels(2, 2))
    queue.push("a", 1, "", 1.0)
    assert queue.due() == 6.0
    queue.push("b", 1, "", 2.0, priority=1)
    assert queue.due() == -inf
    assert queue.pop(2.0) == ["b", "a"]


def test_the_delay_counts_from_the_oldest_whatever_its_priority() -> None:
    queue = BatchQueue[str](BatchPolicy(4, max_queue_delay=5.0), PriorityLevels(2, 2))
    queue.push("a", 1, "", 1.0)
    queue.push("b", 1, "", 3.0, priority=1)
    assert queue.due() == 6.0


STEPS = st.lists(
    st.tuples(st.sampled_from("paelw"), st.integers(1, 3), st.integers(1, 4)), max_size=40
)


@given(policies(), STEPS, st.sampled_from([(), (2,)]))
def test_a_batch_kept_while_requests_come_is_the_one_that_would_be_formed_anew(
    policy: BatchPolicy, steps: list[tuple[str, int, int]], buckets: tuple[int, ...]
) -> None:
    """Every change but a request that joins behind makes the queue form its batch again."""
    policy = replace(policy, buckets=buckets)
    levels = PriorityLevels(3, 2, LevelPolicy(timeout=4.0), {3: LevelPolicy(2.0, delays=True)})
    queue, now, entries, gone = BatchQueue[int](policy, levels), 0.0, [], []
    for number, (action, level, rows) in enumerate(steps):
        if action in "pa":
            entry = queue.push(number, rows, rows == 4, now, length=rows, priority=level)
            assert entry is not None
            entries.append(entry)
        elif action == "w":
            now += level
        elif action == "e":
            gone += queue.expire(now)
        elif entries:
            entry = entries.pop(level % len(entries))
            gone += [entry.item] if entry.waiting else []
            queue.leave(entry)
        kept = queue.due()
        queue._forming = None
        assert queue.due() == kept
        if action == "a":
            gone += queue.pop(now)
    assert sorted(gone + queue.clear()) == [n for n, (a, _, _) in enumerate(steps) if a in "pa"]
