"""Fixtures of the tests on a GPU, which are collected only where somebody names them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient

from gpu.machine import described, missing
from gpu.report import GpuReport
from gpu.serving import FLAGS, GpuServer, write_models
from harness.serving import serving

_HERE = Path(__file__).parent
_REPORT = Path(os.environ.get("PENSTOCK_GPU_REPORT", _HERE.parents[1] / "build" / "gpu"))


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leave these tests out of a run that was not asked for them."""
    asked = (Path(config.invocation_params.dir, str(one).partition("::")[0]) for one in config.args)
    named = any(_HERE in (path.resolve(), *path.resolve().parents) for path in asked)
    return None if named else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Report what becomes of the tests, where there are some of this folder."""
    if any(_HERE in item.path.parents for item in items) and not config.option.collectonly:
        machine = {} if missing() else described()
        config.pluginmanager.register(GpuReport(_REPORT, machine), "gpu-report")


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu") / "models"
    write_models(folder)
    return folder


@pytest.fixture(scope="session")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuServer]:
    """Explicit, as each model is a process that imports PyTorch."""
    log = tmp_path_factory.mktemp("log") / "log"
    with (
        serving(repository, log, *FLAGS) as served,
        grpcclient.InferenceServerClient(served.grpc) as client,
    ):
        yield GpuServer(served, repository, client)
