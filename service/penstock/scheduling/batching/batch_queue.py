"""`BatchQueue`: the queue of the dynamic batcher, which decides what to batch and when."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from typing import Generic, TypeVar

from penstock.scheduling.batching.forming import BatchPolicy, BucketedBatches, FormingBatch
from penstock.scheduling.batching.priority import PriorityLevels
from penstock.scheduling.batching.priority_queue import Entry, PriorityQueue

__all__ = ["BatchPolicy", "BatchQueue", "Entry"]

T = TypeVar("T")


class BatchQueue(Generic[T]):
    """Requests waiting to be executed together. Knows no clock, task or lock.

    A batch is formed of the first requests in the order of priority and age that have one
    signature (equal shapes, D-06) and fit; the first that does not closes it, and none is ever
    split. With length buckets, each bucket forms a batch of its own.
    """

    def __init__(self, policy: BatchPolicy, levels: PriorityLevels | None = None) -> None:
        self._policy = policy
        self._waiting: PriorityQueue[T] = PriorityQueue(levels or PriorityLevels())
        # Kept while requests are only appended; rebuilt after every other change.
        self._forming: FormingBatch[T] | BucketedBatches[T] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def push(
        self,
        item: T,
        rows: int,
        signature: Hashable,
        now: float,
        *,
        length: int = 0,
        priority: int = 0,
        timeout: float = 0.0,
    ) -> Entry[T] | None:
        """Add a request that takes `rows` of a batch; `None` when its level is full (D-11)."""
        buckets = self._policy.buckets
        bucket = bisect_left(buckets, length) if buckets else 0
        entry = Entry(item, rows, signature, now, length, bucket)
        if not self._waiting.add(entry, priority, timeout):
            return None
        if self._forming is not None:
            self._append_to(self._forming, entry)
        return entry

    def leave(self, entry: Entry[T]) -> None:
        """Remove a cancelled request; no effect if a batch has it already."""
        if entry.waiting:
            self._waiting.remove(entry)
            self._forming = None

    def expire(self, now: float) -> list[T]:
        """Apply the queue timeouts; returns the requests to reject, others are moved behind."""
        if self._waiting.next_expiry() > now:
            return []
        self._forming = None
        return self._waiting.expire(now)

    def next_expiry(self) -> float:
        """Time of the next queue timeout; `inf` for never."""
        return self._waiting.next_expiry()

    def due(self) -> float:
        """The latest time for the next batch: `-inf` for at once, `inf` for never."""
        return self._current().due()

    def pop(self, now: float) -> list[T]:
        """Remove and return the next batch; empty if the queue is.

        After the queue delay it is as large as possible, even beyond a preferred size (D-05).
        """
        entries = self._current().chosen(now)
        for entry in entries:
            self._waiting.remove(entry)
        self._forming = None
        return [entry.item for entry in entries]

    def clear(self) -> list[T]:
        """Empty the queue; returns what was in it."""
        self._forming = None
        return self._waiting.clear()

    def _append_to(self, forming: FormingBatch[T] | BucketedBatches[T], entry: Entry[T]) -> None:
        if not self._waiting.is_last(entry):
            self._forming = None
        elif not forming.closed:
            forming.add(entry)

    def _current(self) -> FormingBatch[T] | BucketedBatches[T]:
        forming = self._forming
        if forming is None:
            policy = self._policy
            forming = BucketedBatches(policy) if policy.buckets else FormingBatch(policy)
            self._forming = forming
            for entry in self._waiting:
                forming.add(entry)
                if forming.closed:
                    break
        return forming
