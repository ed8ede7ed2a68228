"""Batch forming: which of the first requests of a queue make a batch (contract D-03 to D-06)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Generic, TypeVar

from penstock.scheduling.batching.priority_queue import Entry

T = TypeVar("T")

_LOOK_AHEAD = 8
"""How much of the queue is searched for the batch of a length bucket, in largest batches."""


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """Limits of the batch size, and the queue delay of the oldest request.

    Sizes are in batch rows; the delay is in seconds. No preferred sizes means `max_batch_size`.
    `max_elements` bounds rows times the longest request, or, where requests are not `padded` to
    one length, the sum of their elements; 0 is no bound. `buckets` are rising upper bounds of
    lengths; the requests of a batch are of one bucket.
    """

    max_batch_size: int
    preferred: frozenset[int] = frozenset()
    max_queue_delay: float = 0.0
    max_elements: int = 0
    padded: bool = True
    buckets: tuple[int, ...] = ()
    sizes: frozenset[int] = field(init=False)
    largest: int = field(init=False)

    def __post_init__(self) -> None:
        # `sizes` leave at once when they can be formed; `largest` is worth waiting for.
        sizes = self.preferred or frozenset((self.max_batch_size,))
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "largest", max(sizes))


class FormingBatch(Generic[T]):
    """A batch in forming: the entries of a queue are added in order, until it is `closed`."""

    __slots__ = (
        "_best",
        "_elements",
        "_longest",
        "_policy",
        "_rows",
        "_since",
        "closed",
        "entries",
    )

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self.entries: list[Entry[T]] = []
        self.closed = False
        self._since = inf
        self._rows = self._longest = self._elements = 0
        self._best = 0

    def due(self) -> float:
        """The latest time to execute it: `-inf` for at once, `inf` for never.

        The queue delay is for less than the largest preferred size (D-05).
        """
        if self.closed or self._best or self._rows >= self._policy.largest:
            return -inf
        return self._since + self._policy.max_queue_delay

    def chosen(self, now: float) -> list[Entry[T]]:
        """The entries to execute: the largest preferred size, or, once overdue, all that fit."""
        delay = self._policy.max_queue_delay
        overdue = delay > 0.0 and now >= self._since + delay
        return self.entries if overdue or not self._best else self.entries[: self._best]

    def add(self, entry: Entry[T]) -> None:
        """Add the next entry of the queue, or close the batch if it does not fit."""
        if self.entries and self._exceeds(entry):
            self.closed = True
        else:
            self._append(entry)

    def _exceeds(self, entry: Entry[T]) -> bool:
        policy, rows = self._policy, self._rows + entry.rows
        if rows > policy.largest and not self._best:
            self._best = len(self.entries)  # beyond every preferred size
        if rows > policy.max_batch_size or entry.signature != self.entries[0].signature:
            return True
        return policy.max_elements > 0 and self._cost_with(entry) > policy.max_elements

    def _append(self, entry: Entry[T]) -> None:
        policy = self._policy
        self.entries.append(entry)
        self._rows += entry.rows
        if entry.since < self._since:
            self._since = entry.since
        if self._rows in policy.sizes:
            self._best = len(self.entries)
        self.closed = self._rows >= policy.max_batch_size
        if policy.max_elements:
            self._longest = max(self._longest, entry.length)
            self._elements += entry.rows * entry.length
            self.closed |= self._cost >= policy.max_elements

    @property
    def _cost(self) -> int:
        return self._rows * self._longest if self._policy.padded else self._elements

    def _cost_with(self, entry: Entry[T]) -> int:
        if self._policy.padded:
            return (self._rows + entry.rows) * max(self._longest, entry.length)
        return self._elements + entry.rows * entry.length


class BucketedBatches(Generic[T]):
    """Batches in forming by length bucket, in the order of the buckets' first entries.

    The first batch that is due is chosen. An overdue one is, so the oldest request waits no longer
    than the queue delay.
    """

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self._by_bucket: dict[int, FormingBatch[T]] = {}
        self._room = _LOOK_AHEAD * policy.max_batch_size
        self.closed = False

    def due(self) -> float:
        """The latest time to execute the first of them."""
        return min((forming.due() for forming in self._by_bucket.values()), default=inf)

    def chosen(self, now: float) -> list[Entry[T]]:
        """The entries to execute."""
        due = (forming for forming in self._by_bucket.values() if forming.due() <= now)
        first = next(due, None) or next(iter(self._by_bucket.values()), None)
        return [] if first is None else first.chosen(now)

    def add(self, entry: Entry[T]) -> None:
        """Add the next entry of the queue to the batch of its bucket, unless that is full."""
        forming = self._by_bucket.get(entry.bucket)
        if forming is None:
            forming = self._by_bucket[entry.bucket] = FormingBatch(self._policy)
        if not forming.closed:
            forming.add(entry)
        self._room -= 1
        self.closed = self._room <= 0
