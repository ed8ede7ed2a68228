"""Servers with small models, and clients that speak with our own messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.server.server import InferenceServer
from penstock.settings import GrpcSettings
from rpc.serving import Client, connected, open_models, write_models


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InferenceServer]:
    async with open_models(write_models(tmp_path_factory.mktemp("models"))) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(local: GrpcSettings, server: InferenceServer) -> AsyncIterator[Client]:
    async with connected(server, local) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def controller(local: GrpcSettings, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a server that loads and unloads models on request."""
    async with (
        open_models(write_models(tmp_path), explicit=True) as server,
        connected(server, local) as client,
    ):
        yield client
