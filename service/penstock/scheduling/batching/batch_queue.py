"""What to batch, and when: the decisions of the dynamic batcher, without a clock, task or lock."""

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
    """Requests that wait to be executed together.

    A batch is made of the first requests in the order of priority and age that have one signature
    (equal shapes, D-06) and fit; the first that does not closes it, and none is ever split. With
    length buckets each of them makes a batch of its own.
    """

    def __init__(self, policy: BatchPolicy, levels: PriorityLevels | None = None) -> None:
        self._policy = policy
        self._waiting: PriorityQueue[T] = PriorityQueue(levels or PriorityLevels())
        # Kept while requests only join behind; every other change asks for it anew.
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
            self._joined(self._forming, entry)
        return entry

    def leave(self, entry: Entry[T]) -> None:
        """Forget a request that nobody wants any more; one that was taken already is left alone."""
        if entry.waiting:
            self._waiting.remove(entry)
            self._forming = None

    def expire(self, now: float) -> list[T]:
        """Who is to be rejected, its time being up; who is only delayed now comes later."""
        if self._waiting.next_expiry() > now:
            return []
        self._forming = None
        return self._waiting.expire(now)

    def next_expiry(self) -> float:
        """When somebody's time is up; `inf` for never."""
        return self._waiting.next_expiry()

    def due(self) -> float:
        """When the next batch must leave, at the latest: `-inf` at once, `inf` never."""
        return self._formed().due()

    def pop(self, now: float) -> list[T]:
        """The next batch; empty when nothing waits.

        Once the delay is up it is as large as it can be, even beyond a preferred size (D-05).
        """
        entries = self._formed().chosen(now)
        for entry in entries:
            self._waiting.remove(entry)
        self._forming = None
        return [entry.item for entry in entries]

    def clear(self) -> list[T]:
        """Everything that waits; nothing does afterwards."""
        self._forming = None
        return self._waiting.clear()

    def _joined(self, forming: FormingBatch[T] | BucketedBatches[T], entry: Entry[T]) -> None:
        if not self._waiting.is_last(entry):
            self._forming = None
        elif not forming.closed:
            forming.add(entry)

    def _formed(self) -> FormingBatch[T] | BucketedBatches[T]:
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
