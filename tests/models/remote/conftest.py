"""Fixtures of repositories that lie elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.object_store import ObjectStore, object_store


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    """A store with an empty bucket."""
    with object_store() as store:
        yield store
