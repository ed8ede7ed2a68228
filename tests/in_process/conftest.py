"""A server in the process of the tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock.in_process as tritonserver
from harness.client_models import write_client_models


@pytest.fixture(scope="package")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of `harness.client_models`."""
    return write_client_models(tmp_path_factory.mktemp("in_process") / "models")


@pytest.fixture(scope="package")
def server(repository: Path) -> Iterator[tritonserver.Server]:
    """A server of them, for all tests of this folder."""
    options = tritonserver.Options(
        model_repository=str(repository),
        model_control_mode=tritonserver.ModelControlMode.EXPLICIT,
        startup_models=["*"],
        server_id="inside",
    )
    with tritonserver.Server(options) as server:
        yield server


@pytest.fixture
def log_as_it_was() -> Iterator[None]:
    """The handlers and levels of this process, which a server changes, as they were before."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    for name in ("penstock", "penstock_backends"):
        logging.getLogger(name).setLevel(logging.NOTSET)
