"""Which cache is opened, and that it is closed."""

from __future__ import annotations

import pytest

from penstock.caching.local import LocalCache
from penstock.caching.opening import open_cache
from penstock.core.errors import ConfigError


@pytest.mark.contract("RC-01")
async def test_without_settings_there_is_no_cache() -> None:
    async with open_cache({}) as cache:
        assert cache is None


@pytest.mark.contract("RC-01")
async def test_the_cache_that_is_named_is_opened() -> None:
    async with open_cache({"local": {"size": "1000"}}) as cache:
        assert isinstance(cache, LocalCache)


async def test_a_cache_that_nobody_knows_is_refused() -> None:
    text = "unable to find cache 'nope'; installed caches: local, redis"
    with pytest.raises(ConfigError, match=text):
        async with open_cache({"nope": {}}):
            pass
