"""What to batch, and when: the decisions of the dynamic batcher, without a clock, task or lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Generic, Protocol, TypeVar


class Item(Protocol):
    """What can wait in a queue."""

    @property
    def abandoned(self) -> bool:
        """Whether nobody wants it any more."""


T = TypeVar("T", bound=Item)


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """How large batches may grow, and how long the oldest request waits for that.

    Sizes are batch rows; the delay is in seconds. No preferred sizes means `max_batch_size`.
    """

    max_batch_size: int
    preferred: frozenset[int] = frozenset()
    max_queue_delay: float = 0.0

    @property
    def sizes(self) -> frozenset[int]:
        """The sizes that leave at once when they can be formed."""
        return self.preferred or frozenset((self.max_batch_size,))

    @property
    def largest(self) -> int:
        """The largest batch worth waiting for."""
        return max(self.sizes)


@dataclass(slots=True)
class _Entry(Generic[T]):
    item: T
    rows: int
    signature: Hashable
    since: float


class BatchQueue(Generic[T]):
    """Requests that wait to be executed together, in order of arrival.

    A batch is a run of neighbours from the front with one signature (equal shapes, D-06) and at
    most `max_batch_size` rows; a request is never split.
    """

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self._entries: deque[_Entry[T]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, item: T, rows: int, signature: Hashable, now: float) -> None:
        """Add a request that takes `rows` of a batch."""
        self._entries.append(_Entry(item, rows, signature, now))

    def due(self) -> float:
        """When the next batch must leave, at the latest: `-inf` at once, `inf` never."""
        self._drop_abandoned()
        if not self._entries:
            return inf
        return -inf if self._preferred()[1] else self._delayed_until()

    def pop(self, now: float) -> list[T]:
        """The next batch; empty when nothing waits.

        Once the delay is up it is as large as it can be, even beyond a preferred size (D-05).
        """
        self._drop_abandoned()
        if not self._entries:
            return []
        overdue = self._policy.max_queue_delay and now >= self._delayed_until()
        count = self._fitting() if overdue else self._preferred()[0]
        return [self._entries.popleft().item for _ in range(count)]

    def clear(self) -> list[T]:
        """Everything that waits; nothing does afterwards."""
        entries, self._entries = self._entries, deque()
        return [entry.item for entry in entries]

    def _delayed_until(self) -> float:
        return self._entries[0].since + self._policy.max_queue_delay

    def _fitting(self) -> int:
        """How many entries fit into one batch."""
        rows = 0
        for count, entry in enumerate(self._entries):
            if count and not self._joins(entry, rows):
                return count
            rows += entry.rows
        return len(self._entries)

    def _preferred(self) -> tuple[int, bool]:
        """How many entries make the batch to prefer, and whether it need not wait for more."""
        rows, best, fitting = 0, 0, self._fitting()
        largest, sizes = self._policy.largest, self._policy.sizes
        for count, entry in enumerate(islice(self._entries, fitting)):
            if count and rows + entry.rows > largest and not best:
                return count, True
            rows += entry.rows
            if rows in sizes:
                best = count + 1
        closed = fitting < len(self._entries) or rows >= largest
        return best or fitting, bool(best) or closed

    def _joins(self, entry: _Entry[T], rows: int) -> bool:
        same = entry.signature == self._entries[0].signature
        return same and rows + entry.rows <= self._policy.max_batch_size

    def _drop_abandoned(self) -> None:
        """Forget who left, as far as the next batch could reach."""
        reach = self._policy.max_batch_size + 1
        if any(e.item.abandoned for e in islice(self._entries, reach)):
            self._entries = deque(e for e in self._entries if not e.item.abandoned)
