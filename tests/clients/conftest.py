"""A server of both example repositories, and its clients of Triton's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.serving import Served, serving
from penstock.demo import write_examples


@pytest.fixture(scope="session")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `penstock demo --examples` writes."""
    pytest.importorskip("onnx")
    folder = tmp_path_factory.mktemp("examples")
    write_examples(folder, report=print)
    return folder


@pytest.fixture(scope="session")
def server(repositories: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    pytest.importorskip("onnxruntime")
    log = tmp_path_factory.mktemp("log") / "server.log"
    more = f"--model-repository={repositories / 'more_models'}"
    with serving(repositories / "model_repository", log, more, "--allow-client-shm=true") as ready:
        yield ready
