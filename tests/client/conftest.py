"""A server for the client, and clients of it over both protocols."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from harness.client_models import write_client_models
from harness.serving import Served, serving
from penstock_client.client import Client


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with the models of `harness.client_models`, for all tests of this folder."""
    folder: Path = tmp_path_factory.mktemp("client")
    repository = write_client_models(folder / "models")
    arguments = ["--allow-client-shm=true", "--model-control-mode=explicit", "--load-model=*"]
    arguments += ["--allow-model-upload=true"]
    with serving(repository, folder / "log", *arguments) as server:
        yield server


@pytest.fixture(params=["grpc", "http"])
def url(served: Served, request: pytest.FixtureRequest) -> str:
    """The address of the server, by one protocol after the other."""
    return served.grpc if request.param == "grpc" else f"http://{served.http}"


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    """A client of the server."""
    async with Client(url, timeout=20.0) as client:
        yield client
