"""Memory that tests of regions share with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.posix_memory import PosixMemory, posix_memory


@pytest.fixture
def memory() -> Iterator[PosixMemory]:
    """8192 bytes."""
    with posix_memory(8192) as memory:
        yield memory
