"""`PriorityQueue`: queued requests by priority and age, with queue timeouts."""

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

_EMPTY_LEVELS = 16
"""Empty levels that are kept: most clients use few priorities, a hostile one uses all."""


class Entry(Generic[T]):
    """A queued request, with what batch forming needs of it.

    `rows` are batch rows, `length` elements a row; `since` and `expires` are on the caller's clock.
    Requests of one batch have the same `signature` and `bucket`.
    """

    __slots__ = (
        "bucket",
        "expires",
        "fifo",
        "item",
        "length",
        "level",
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
        self.level: _Level[T] | None = None
        self.fifo: _Fifo[T] | None = None

    @property
    def waiting(self) -> bool:
        """Whether it still is in the queue."""
        return self.fifo is not None


_Fifo = OrderedDict[Entry[T], None]
"""Entries in FIFO order; any of them can be removed in constant time."""


class _Level(Generic[T]):
    """The requests of one level; delayed ones come behind all others of the level (D-13)."""

    def __init__(self, number: int, policy: LevelPolicy) -> None:
        self.number = number
        self.policy = policy
        self.prompt: _Fifo[T] = OrderedDict()
        self.delayed: _Fifo[T] = OrderedDict()

    @property
    def size(self) -> int:
        return len(self.prompt) + len(self.delayed)


class PriorityQueue(Generic[T]):
    """Entries in the order of service. Knows no clock, task or lock."""

    def __init__(self, levels: PriorityLevels) -> None:
        self._levels = levels
        self._active: list[_Level[T]] = []
        self._by_level: dict[int, _Level[T]] = {}
        self._fifos: list[_Fifo[T]] = []
        self._size = 0
        self._expiring: list[tuple[float, int, Entry[T]]] = []
        self._numbers = count()
        self._only = None if levels.count else self._open(levels.default)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Entry[T]]:
        return chain.from_iterable(self._fifos)

    def add(self, entry: Entry[T], priority: int = 0, timeout: float = 0.0) -> bool:
        """Queue a request; false if its level is full (D-11). `timeout` is in seconds."""
        level = self._only or self._find_level(self._levels.level(priority))
        policy = level.policy
        if policy.max_queue_size and level.size >= policy.max_queue_size:
            return False
        level.prompt[entry] = None
        entry.level, entry.fifo = level, level.prompt
        self._size += 1
        if policy.timeout:
            self._expire_at(entry, entry.since + policy.queue_timeout(timeout))
        return True

    def is_last(self, entry: Entry[T]) -> bool:
        """Whether an entry just added is served after all others."""
        return next(fifo for fifo in reversed(self._fifos) if fifo) is entry.fifo

    def remove(self, entry: Entry[T]) -> None:
        """Remove a queued entry."""
        assert entry.fifo is not None
        del entry.fifo[entry]
        entry.fifo = None
        self._size -= 1

    def next_expiry(self) -> float:
        """Time of the next timeout; `inf` for never."""
        expiring = self._expiring
        while expiring and not expiring[0][2].waiting:
            heappop(expiring)
        return expiring[0][0] if expiring else inf

    def expire(self, now: float) -> list[T]:
        """Expire timeouts; returns the items to reject (D-12), others are moved behind (D-13)."""
        rejected: list[T] = []
        while self.next_expiry() <= now:
            entry = heappop(self._expiring)[2]
            level = entry.level
            assert level is not None
            self.remove(entry)
            if level.policy.delays:
                level.delayed[entry] = None
                entry.fifo = level.delayed
                self._size += 1
            else:
                rejected.append(entry.item)
        return rejected

    def clear(self) -> list[T]:
        """Empty the queue; returns what was in it."""
        entries = list(self)
        for entry in entries:
            self.remove(entry)
        self._expiring.clear()
        return [entry.item for entry in entries]

    def _find_level(self, number: int) -> _Level[T]:
        level = self._by_level.get(number)
        return self._open(number) if level is None else level

    def _open(self, number: int) -> _Level[T]:
        if len(self._active) >= _EMPTY_LEVELS:
            self._active = [level for level in self._active if level.size]
        opened = _Level[T](number, self._levels.policy(number))
        insort(self._active, opened, key=lambda level: level.number)
        self._by_level = {level.number: level for level in self._active}
        self._fifos = [fifo for level in self._active for fifo in (level.prompt, level.delayed)]
        return opened

    def _expire_at(self, entry: Entry[T], when: float) -> None:
        if len(self._expiring) > 2 * self._size + 16:  # mostly stale entries
            self._expiring = [timed for timed in self._expiring if timed[2].waiting]
            heapify(self._expiring)
        entry.expires = when
        heappush(self._expiring, (when, next(self._numbers), entry))
