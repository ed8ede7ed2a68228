"""A server for the commands of clients, named by the environment as users would."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.client_models import write_client_models
from harness.serving import Served, serving


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with the models of `harness.client_models`."""
    folder: Path = tmp_path_factory.mktemp("verbs")
    repository = write_client_models(folder / "models")
    arguments = ["--model-control-mode=explicit", "--load-model=*"]
    with serving(repository, folder / "log", *arguments) as server:
        yield server


@pytest.fixture
def server(served: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """The server, which `$PENSTOCK_URL` names."""
    monkeypatch.setenv("PENSTOCK_URL", served.grpc)
    assert "PENSTOCK_URL" in os.environ
    return served
