"""`LocalCache`: an LRU cache of responses in the server's memory (RC-06)."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from penstock.caching import CacheStatistics, Found
from penstock.core.errors import ConfigError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import Tensor

_ENTRY, _TENSOR = 400, 200
"""Overhead in bytes of an entry, and of each tensor, beside the elements."""


class LocalCache:
    """An LRU cache of at most `size` bytes; a larger response is not stored."""

    shared = False

    def __init__(self, size: int) -> None:
        self.statistics = CacheStatistics()
        self._size = size
        self._used = 0
        self._entries: OrderedDict[bytes, tuple[InferenceResponse, int]] = OrderedDict()

    @classmethod
    async def open(cls, settings: Mapping[str, str]) -> LocalCache:
        """Open the cache of `--cache-config local,size=<bytes>`."""
        unknown = sorted(set(settings) - {"size"})
        if unknown:
            raise ConfigError(f"unknown setting '{unknown[0]}' of the local cache; it has: size")
        text = settings.get("size", "")
        if not text.isdecimal() or not int(text):
            raise ConfigError(
                f"the local cache's 'size' must be a number of bytes above 0, got '{text}'"
            )
        return cls(int(text))

    def lookup(self, key: bytes, found: Found) -> None:
        """Call `found` before returning."""
        begun = time.monotonic_ns()
        entry = self._entries.get(key)
        statistics = self.statistics
        statistics.lookups += 1
        if entry is None:
            statistics.misses += 1
        else:
            statistics.hits += 1
            self._entries.move_to_end(key)
        statistics.lookup_ns += time.monotonic_ns() - begun
        found(None if entry is None else entry[0])

    def insert(self, key: bytes, response: InferenceResponse, done: Callable[[], None]) -> None:
        """Store a copy, evicting the least recently used; calls `done` before returning."""
        begun = time.monotonic_ns()
        size = _size(response)
        if size <= self._size and key not in self._entries:
            while self._used + size > self._size:
                self._evict()
            self._entries[key] = _copied(response), size
            self._account(size)
        self.statistics.insertion_ns += time.monotonic_ns() - begun
        done()

    async def close(self) -> None:
        """Drop all entries."""
        self._entries.clear()
        self._account(-self._used)

    def _evict(self) -> None:
        _, (_, size) = self._entries.popitem(last=False)
        self.statistics.evictions += 1
        self._account(-size)

    def _account(self, change: int) -> None:
        self._used += change
        self.statistics.entries = len(self._entries)
        self.statistics.utilization = self._used / self._size


def _size(response: InferenceResponse) -> int:
    tensors = sum(_TENSOR + tensor.nbytes for tensor in response.outputs.values())
    return _ENTRY + tensors


def _copied(response: InferenceResponse) -> InferenceResponse:
    """A deep copy: the memory of a response may be reused."""
    outputs = {
        name: Tensor(tensor.datatype, tensor.shape, bytes(tensor.buffer))
        for name, tensor in response.outputs.items()
    }
    return InferenceResponse(outputs, dict(response.parameters), final=True)
