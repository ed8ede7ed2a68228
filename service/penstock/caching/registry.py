"""The registry of response caches, which are entry points (RC-01, RC-02, RC-11)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from penstock.caching import ResponseCache
from penstock.core.errors import ConfigError

GROUP = "penstock.caches"
"""The entry point group in which distributions register caches."""

_OWN = {
    "local": "penstock.caching.local:LocalCache",
    "redis": "penstock.caching.redis:RedisCache",
}


class CacheType(Protocol):
    """The object of an entry point: a class that opens a cache from its settings."""

    async def open(self, settings: Mapping[str, str]) -> ResponseCache:
        """The open cache; raises `ConfigError` for invalid settings."""


@asynccontextmanager
async def open_cache(
    config: Mapping[str, Mapping[str, str]],
) -> AsyncIterator[ResponseCache | None]:
    """Open the cache that `config` names, closed on exit; yields `None` if it names none.

    Raises `ConfigError` for an unknown cache or invalid settings.
    """
    if not config:
        yield None
        return
    ((name, settings),) = config.items()
    cache = await _find(name).open(settings)
    try:
        yield cache
    finally:
        await cache.close()


def _find(name: str) -> CacheType:
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    entries |= {own: EntryPoint(own, target, GROUP) for own, target in _OWN.items()}
    if name not in entries:
        known = ", ".join(sorted(entries))
        raise ConfigError(f"unable to find cache '{name}'; installed caches: {known}")
    kind: CacheType = entries[name].load()
    return kind
