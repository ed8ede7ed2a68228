"""Servers and clients that the tests of the HTTP frontend share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.serving import FakeServer, SilentServer, connected
from rpc.certificates import write_certificates


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client of `server`."""
    async with connected(server) as client:
        yield client


@pytest.fixture
def silent_server() -> SilentServer:
    return SilentServer()


@pytest.fixture
async def silent_client(silent_server: SilentServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client of `silent_server`."""
    async with connected(silent_server) as client:
        yield client


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_certificates(tmp_path_factory.mktemp("certificates"))
