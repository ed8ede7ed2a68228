"""The stand-in for TensorRT-LLM, importable, and models for it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc import InferenceServerClient

from backends.tensorrt_llm.asking import opened
from harness.serving import Served

PACKAGE = Path(__file__).with_name("package")
RELEASES = ("1.2", "1.4")
YAML = """
model: tiny
triton_config:
  max_batch_size: 0
  decoupled: true
"""

WriteModel = Callable[..., Path]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each line of releases whose API is known."""
    monkeypatch.setenv("PENSTOCK_STAND_IN_TRTLLM", request.param)
    return str(request.param)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`tensorrt_llm` is the stand-in."""
    monkeypatch.syspath_prepend(str(PACKAGE))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorrt_llm"]:
        del sys.modules[name]


@pytest.fixture
def version(tmp_path: Path) -> WriteModel:
    """Writes a version directory with this `model.yaml`."""

    def write(text: str = YAML, **files: Any) -> Path:
        folder = tmp_path / "1"
        folder.mkdir(exist_ok=True)
        (folder / "model.yaml").write_text(text)
        return folder

    return write


@pytest.fixture
async def instance(version: WriteModel, release: str, stand_in: None) -> AsyncIterator[Any]:
    async with opened(version(YAML + "  multimodal: true\nenable_lora: true\n")) as instance:
        yield instance


@pytest.fixture
def client(server: Served) -> Iterator[InferenceServerClient]:
    """A client of the server that its module starts."""
    with InferenceServerClient(server.grpc) as client:
        yield client
