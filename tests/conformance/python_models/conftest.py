"""One server for each file of tests, over the models that the file holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.python_models.client import Client
from conformance.python_models.repository import write_models
from harness.serving import Served, serving


@pytest.fixture(scope="module")
def repository(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository of the file's `MODELS`."""
    return write_models(tmp_path_factory.mktemp("models"), request.module.MODELS)


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """`penstock serve` over the repository, with the file's `ARGUMENTS`."""
    arguments = getattr(request.module, "ARGUMENTS", ())
    with serving(repository, tmp_path_factory.mktemp("log") / "log", *arguments) as served:
        yield served


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[Client]:
    """The stock gRPC client in a process of its own."""
    with Client(server.grpc) as connected:
        yield connected
