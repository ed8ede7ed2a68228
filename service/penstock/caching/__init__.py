"""Response caches: what a server remembers of equal requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.core.request import InferenceResponse

Found = Callable[[InferenceResponse | None], None]


@dataclass(slots=True)
class CacheStatistics:
    """What a cache has done; times in nanoseconds. What a remote one holds is not known: 0."""

    lookups: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    entries: int = 0
    utilization: float = 0.0
    lookup_ns: int = 0
    insertion_ns: int = 0


class ResponseCache(Protocol):
    """Keeps responses by key. It may forget any at any time, and never raises.

    A `shared` cache is also that of other servers, and outlives this one.
    """

    shared: bool
    statistics: CacheStatistics

    def lookup(self, key: bytes, found: Found) -> None:
        """Call `found` with the response, or `None`: before this returns, or later."""

    def insert(self, key: bytes, response: InferenceResponse, done: Callable[[], None]) -> None:
        """Keep a copy of the response; `done` is called once that is done or was given up."""

    async def close(self) -> None:
        """Release what the cache holds."""
