"""Requests that wait: by priority, then by age; until they are taken, leave or run out of time."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain, count
from math import inf
from typing import Generic, TypeVar

from penstock.scheduling.batching.priority import LevelPolicy, PriorityLevels

T = TypeVar("T")

_EMPTY_LANES = 16
"""Lanes that may stand empty: most clients use few priorities, a hostile one uses all."""


class Entry(Generic[T]):
    """A waiting request, and what is asked of it when batches are formed.

    `rows` are batch rows, `length` elements a row; `since` and `expires` are on the caller's clock.
    Requests of one batch have the same `signature` and `bucket`.
    """

    __slots__ = (
        "bucket",
        "expires",
        "item",
        "lane",
        "length",
        "line",
        "rows",
        "signature",
        "since",
    )

    def __init__(
        self,
        item: T,
        rows: int,
        signature: Hashable,
        since: float,
        length: int = 0,
        bucket: int = 0,
    ) -> None:
        self.item = item
        self.rows = rows
        self.signature = signature
        self.since = since
        self.length = length
        self.bucket = bucket
        self.expires = inf
        self.lane: _Lane[T] | None = None
        self.line: _Line[T] | None = None

    @property
    def waiting(self) -> bool:
        """Whether it still is in the queue."""
        return self.line is not None


_Line = OrderedDict[Entry[T], None]
"""Entries in the order in which they are served; any of them can leave at once."""


class _Lane(Generic[T]):
    """The requests of one level; who was delayed comes behind all others of the level (D-13)."""

    def __init__(self, level: int, policy: LevelPolicy) -> None:
        self.level = level
        self.policy = policy
        self.prompt: _Line[T] = OrderedDict()
        self.delayed: _Line[T] = OrderedDict()

    @property
    def size(self) -> int:
        return len(self.prompt) + len(self.delayed)


class PriorityQueue(Generic[T]):
    """Entries in the order in which they are to be served. Knows no clock, task or lock."""

    def __init__(self, levels: PriorityLevels) -> None:
        self._levels = levels
        self._lanes: list[_Lane[T]] = []
        self._by_level: dict[int, _Lane[T]] = {}
        self._lines: list[_Line[T]] = []
        self._size = 0
        self._expiring: list[tuple[float, int, Entry[T]]] = []
        self._numbers = count()
        self._only = None if levels.count else self._open(levels.default)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Entry[T]]:
        return chain.from_iterable(self._lines)

    def add(self, entry: Entry[T], priority: int = 0, timeout: float = 0.0) -> bool:
        """Let a request wait; false when its level is full (D-11). `timeout` is in seconds."""
        lane = self._only or self._lane(self._levels.level(priority))
        policy = lane.policy
        if policy.max_queue_size and lane.size >= policy.max_queue_size:
            return False
        lane.prompt[entry] = None
        entry.lane, entry.line = lane, lane.prompt
        self._size += 1
        if policy.timeout:
            self._expire_at(entry, entry.since + policy.queue_timeout(timeout))
        return True

    def is_last(self, entry: Entry[T]) -> bool:
        """Whether an entry just added is served after all others."""
        return next(line for line in reversed(self._lines) if line) is entry.line

    def remove(self, entry: Entry[T]) -> None:
        """Let go of an entry that waits."""
        assert entry.line is not None
        del entry.line[entry]
        entry.line = None
        self._size -= 1

    def next_expiry(self) -> float:
        """When `expire` has something to do; `inf` for never."""
        expiring = self._expiring
        while expiring and not expiring[0][2].waiting:
            heappop(expiring)
        return expiring[0][0] if expiring else inf

    def expire(self, now: float) -> list[T]:
        """Who is to be rejected since its time is up (D-12); others are put behind (D-13)."""
        rejected: list[T] = []
        while self.next_expiry() <= now:
            entry = heappop(self._expiring)[2]
            lane = entry.lane
            assert lane is not None
            self.remove(entry)
            if lane.policy.delays:
                lane.delayed[entry] = None
                entry.line = lane.delayed
                self._size += 1
            else:
                rejected.append(entry.item)
        return rejected

    def clear(self) -> list[T]:
        """Everything that waits; nothing does afterwards."""
        entries = list(self)
        for entry in entries:
            self.remove(entry)
        self._expiring.clear()
        return [entry.item for entry in entries]

    def _lane(self, level: int) -> _Lane[T]:
        lane = self._by_level.get(level)
        return self._open(level) if lane is None else lane

    def _open(self, level: int) -> _Lane[T]:
        if len(self._lanes) >= _EMPTY_LANES:
            self._lanes = [lane for lane in self._lanes if lane.size]
        lane = _Lane[T](level, self._levels.policy(level))
        insort(self._lanes, lane, key=lambda lane: lane.level)
        self._by_level = {lane.level: lane for lane in self._lanes}
        self._lines = [line for lane in self._lanes for line in (lane.prompt, lane.delayed)]
        return lane

    def _expire_at(self, entry: Entry[T], when: float) -> None:
        if len(self._expiring) > 2 * self._size + 16:  # most of them have left in time
            self._expiring = [timed for timed in self._expiring if timed[2].waiting]
            heapify(self._expiring)
        entry.expires = when
        heappush(self._expiring, (when, next(self._numbers), entry))
