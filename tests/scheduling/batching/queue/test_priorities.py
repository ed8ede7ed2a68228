"""Batches of requests that are not equally urgent."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduling.batching.batch_queue import BatchPolicy, BatchQueue
from penstock.scheduling.batching.priority import LevelPolicy, PriorityLevels
from scheduling.batching.queue.items import policies


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
        passing = queue.push(-1, 1, False, now, priority=3)
        assert passing is not None
        queue.leave(passing)
        assert queue.due() == kept
        if action == "a":
            gone += queue.pop(now)
    assert sorted(gone + queue.clear()) == [n for n, (a, _, _) in enumerate(steps) if a in "pa"]
