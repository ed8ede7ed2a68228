"""The order of tests that share a server with engines."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put last in its file what takes a model from the other tests: an engine is slow to start."""
    for item in [item for item in items if item.name.endswith("_unloads_itself")]:
        items.remove(item)
        last = max(at for at, other in enumerate(items) if other.path == item.path)
        items.insert(last + 1, item)
