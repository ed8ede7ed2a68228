"""A server to look at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from top.stub_server import StubServer, stub_server, tritons


@pytest.fixture
def server() -> Iterator[StubServer]:
    """One that answers as a server with one model, `bert`, does."""
    with stub_server() as server:
        tritons(server)
        yield server
