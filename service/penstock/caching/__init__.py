"""Response caches: the interface, and statistics of a cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.core.request import InferenceResponse

Found = Callable[[InferenceResponse | None], None]


@dataclass(slots=True)
class CacheStatistics:
    """Counters of a cache; times in nanoseconds. The contents of a remote cache are unknown: 0."""

    lookups: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    entries: int = 0
    utilization: float = 0.0
    lookup_ns: int = 0
    insertion_ns: int = 0


class ResponseCache(Protocol):
    """A cache of responses by key. It may evict any entry at any time, and never raises.

    A `shared` cache is used by other servers too, and outlives this one.
    """

    shared: bool
    statistics: CacheStatistics

    def lookup(self, key: bytes, found: Found) -> None:
        """Call `found` with the response, or `None` for a miss, before returning or later."""

    def insert(self, key: bytes, response: InferenceResponse, done: Callable[[], None]) -> None:
        """Store a copy of the response; `done` is called once it is stored or has failed."""

    async def close(self) -> None:
        """Release the cache's resources."""
