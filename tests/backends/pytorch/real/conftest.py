"""PyTorch models in the process of the tests, which run only where it is installed."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.models.config.defaults import with_backend
from penstock.models.config.pbtxt import read_pbtxt
from penstock.testing import RunningInstance, running
from penstock_backends.pytorch import PyTorchBackend

collect_ignore_glob = [] if "PENSTOCK_TEST_VLLM" in os.environ else ["*"]

Opened = AbstractAsyncContextManager[RunningInstance]


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of `make_models.py`."""
    folder = tmp_path_factory.mktemp("pytorch") / "models"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["make_models.py", str(folder), "--compile"])
        runpy.run_path(str(Path(__file__).parents[1] / "make_models.py"), run_name="__main__")
    return folder


@pytest.fixture
def opened(repository: Path) -> Callable[..., Opened]:
    """Opens an instance of one of the models, with backend settings."""

    def start(name: str, **settings: str) -> Opened:
        version = repository / name / "1"
        files = [file.name for file in version.iterdir()]
        config = with_backend(read_pbtxt(version.parent / "config.pbtxt"), name, files)
        return running(PyTorchBackend, config, version, settings)

    return start


@pytest.fixture
def ask(opened: Callable[..., Opened]) -> Callable[..., Awaitable[list[Any]]]:
    """Runs a model once; the arrays of the outputs in the order of the configuration."""

    async def one(name: str, inputs: Mapping[str, Any]) -> list[Any]:
        async with opened(name) as instance:
            [response] = [each async for each in instance.infer(inputs)]
            return [response.outputs[output.name] for output in instance.config.output]

    return partial(one)
