"""The demo repository, written once for all tests that only read it."""

from pathlib import Path

import pytest

from penstock.demo import write_demo


@pytest.fixture(scope="session")
def demo_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("onnx", "safetensors"):
        pytest.importorskip(package)
    directory = tmp_path_factory.mktemp("demo")
    write_demo(directory, report=print)
    return directory
