"""Fixtures: a model process without a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backends.python.linked import Linked
from backends.python.scripted import FakeRuntime
from penstock_backends.python.pb_utils import runtime


@pytest.fixture
def process() -> Iterator[FakeRuntime]:
    """The runtime that `pb_utils` reaches during the test."""
    fake = FakeRuntime()
    runtime.install(fake)
    yield fake
    runtime.install(None)


@pytest.fixture
def linked() -> Iterator[Linked]:
    """A link without a worker."""
    linked = Linked()
    yield linked
    linked.close()
