"""A pytest plugin that knows each test that was collected, also those that are left out then."""

from __future__ import annotations

import pytest

NAMES = pytest.StashKey[set[str]]()
"""Where the configuration of a run keeps their names."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep its name."""
    item.config.stash.setdefault(NAMES, set()).add(item.nodeid)
