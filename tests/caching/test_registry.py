"""Caches are found by name, opened and closed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from penstock.caching.local import LocalCache
from penstock.caching.registry import open_cache
from penstock.core.errors import ConfigError


@pytest.mark.contract("RC-01")
async def test_without_settings_there_is_no_cache() -> None:
    async with open_cache({}) as cache:
        assert cache is None


@pytest.mark.contract("RC-01")
async def test_the_cache_that_is_named_is_opened() -> None:
    async with open_cache({"local": {"size": "1000"}}) as cache:
        assert isinstance(cache, LocalCache)


@pytest.mark.contract("RC-11")
async def test_a_cache_of_another_distribution_is_opened_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Foreign(LocalCache):
        closed = False

        @classmethod
        async def open(cls, settings: Mapping[str, str]) -> Foreign:
            return cls(int(settings["room"]))

        async def close(self) -> None:
            self.closed = True

    module = ModuleType("foreign_cache")
    module.__dict__["Foreign"] = Foreign
    monkeypatch.setitem(sys.modules, module.__name__, module)
    info = tmp_path / "foreign-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[penstock.caches]\nmine = foreign_cache:Foreign\n")
    monkeypatch.syspath_prepend(tmp_path)
    async with open_cache({"mine": {"room": "10"}}) as cache:
        assert isinstance(cache, Foreign)
        assert not cache.closed
    assert cache.closed


async def test_an_unknown_cache_is_refused() -> None:
    text = "unable to find cache 'nope'; installed caches: local, redis"
    with pytest.raises(ConfigError, match=text):
        async with open_cache({"nope": {}}):
            pass
