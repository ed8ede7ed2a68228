"""Servers with a language model on either engine, asked with the stock client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.vllm.real.conftest import IN_CORE
from backends.vllm.test_real_engine import PYTHON, engine_environment
from conformance.language_models.asking import Asked
from harness.serving import serving
from penstock.demo import language_model

_START_LIMIT = 600
"""Seconds in which a server with vLLM starts on the busiest machine, before vLLM is compiled."""
_SETTINGS: dict[str, dict[str, Any]] = {
    "openvino_genai": {
        "properties": {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    },
    "vllm": {
        "model": "model",
        "dtype": "float32",
        "enforce_eager": True,
        "gpu_memory_utilization": 0.2,
        "max_num_seqs": 16,
        **IN_CORE,
    },
}


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what a test needs whose server has vLLM."""
    called = getattr(item, "callspec", None)
    if "vllm" in getattr(item, "fixturenames", ()) or (
        called is not None and called.params.get("asked") == "vllm"
    ):
        missing = "" if PYTHON.exists() else f"no vLLM environment at {PYTHON}: make vllm"
        item.add_marker(pytest.mark.needs("vllm", missing))
        item.add_marker(pytest.mark.time_limit(_START_LIMIT + 60))


def _served(engine: str, folder: Path) -> Iterator[Asked]:
    version = folder / "repository" / "m" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(f'backend: "{engine}"')
    (version / "model.json").write_text(json.dumps(_SETTINGS[engine]))
    add = language_model.add_checkpoint if engine == "vllm" else language_model.add_gguf
    add(version)
    python = [f"--backend-config=vllm,python={PYTHON}"] if engine == "vllm" else []
    repository, log = folder / "repository", folder / "server.log"
    with (
        engine_environment(),
        serving(repository, log, *python, timeout=_START_LIMIT) as server,
    ):
        yield Asked(server, engine)


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """A server with vLLM."""
    yield from _served("vllm", tmp_path_factory.mktemp("vllm"))


@pytest.fixture(scope="session")
def openvino(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """A server with OpenVINO GenAI."""
    pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")
    yield from _served("openvino_genai", tmp_path_factory.mktemp("openvino"))


@pytest.fixture(params=["openvino", "vllm"])
def asked(request: pytest.FixtureRequest) -> Asked:
    """Each of both."""
    server: Asked = request.getfixturevalue(request.param)
    return server
