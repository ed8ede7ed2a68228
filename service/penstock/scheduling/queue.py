"""What to batch, and when: the decisions of the dynamic batcher, without a clock, task or lock."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Generic, TypeVar

from penstock.scheduling.forming import BatchPolicy, Forming
from penstock.scheduling.priority import PriorityLevels
from penstock.scheduling.waiting import Entry, PriorityQueue

__all__ = ["BatchPolicy", "BatchQueue", "Entry"]

T = TypeVar("T")


class BatchQueue(Generic[T]):
    """Requests that wait to be executed together.

    A batch is made of the first requests in the order of priority and age that have one signature
    (equal shapes, D-06) and fit; a request is never split. Those of another length bucket are
    skipped, while a request that does not fit for any other reason closes the batch.
    """

    def __init__(self, policy: BatchPolicy, levels: PriorityLevels | None = None) -> None:
        self._policy = policy
        self._waiting: PriorityQueue[T] = PriorityQueue(levels or PriorityLevels())
        # Kept while requests only join behind; every other change asks for it anew.
        self._forming: Forming[T] | None = None

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
        bucket: int = 0,
        priority: int = 0,
        timeout: float = 0.0,
    ) -> Entry[T] | None:
        """Add a request that takes `rows` of a batch; `None` when its level is full (D-11)."""
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
        forming = self._formed()
        if not forming.entries:
            return inf
        return -inf if forming.ready else forming.since + self._policy.max_queue_delay

    def pop(self, now: float) -> list[T]:
        """The next batch; empty when nothing waits.

        Once the delay is up it is as large as it can be, even beyond a preferred size (D-05).
        """
        forming, delay = self._formed(), self._policy.max_queue_delay
        entries = forming.chosen(overdue=delay > 0.0 and now >= forming.since + delay)
        for entry in entries:
            self._waiting.remove(entry)
        self._forming = None
        return [entry.item for entry in entries]

    def clear(self) -> list[T]:
        """Everything that waits; nothing does afterwards."""
        self._forming = None
        return self._waiting.clear()

    def _joined(self, forming: Forming[T], entry: Entry[T]) -> None:
        if not self._waiting.is_last(entry):
            self._forming = None
        elif not forming.closed:
            forming.add(entry)

    def _formed(self) -> Forming[T]:
        if self._forming is None:
            self._forming = Forming(self._policy)
            for entry in self._waiting:
                self._forming.add(entry)
                if self._forming.closed:
                    break
        return self._forming
