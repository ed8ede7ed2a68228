"""Single instances without a server, the demo's tiny language model as each engine reads it, and a
real network in the formats of several engines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from penstock.core.backend import Backend, InstanceContext
from penstock.core.config import ModelConfig
from penstock.demo import language_model

OpenInstance = Callable[..., Awaitable[Any]]

F32: dict[str, Any] = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "INFERENCE_NUM_THREADS": 1,
}
"""In bfloat16, as the CPU computes without these, a text depends on what runs beside it.

Of so small a model, several threads spend more time waiting for each other than computing.
"""


@pytest.fixture(scope="session")
def gguf_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A version directory with the model as GGUF and small, exact engine settings."""
    version = tmp_path_factory.mktemp("gguf") / "1"
    version.mkdir()
    language_model.add_gguf(version)
    write_settings(version, num_kv_blocks=256, max_num_seqs=64, max_num_batched_tokens=256)
    return version


@pytest.fixture(scope="session")
def checkpoint_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A version directory with the model as a Hugging Face folder."""
    version = tmp_path_factory.mktemp("checkpoint") / "1"
    version.mkdir()
    language_model.add_checkpoint(version)
    return version


@pytest.fixture
def own_gguf_version(gguf_version: Path, tmp_path: Path) -> Path:
    """Like `gguf_version`, for a test that writes its own `model.json`."""
    for name in ("model.gguf", "tokenizer.json"):
        (tmp_path / name).symlink_to(gguf_version / name)
    return tmp_path


def write_settings(version: Path, **settings: Any) -> None:
    """A `model.json` for OpenVINO GenAI that computes in float32."""
    (version / "model.json").write_text(json.dumps({"properties": F32, **settings}))


@pytest.fixture
def version(tmp_path: Path) -> Path:
    """The directory of version 1 of a model."""
    path = tmp_path / "model" / "1"
    path.mkdir(parents=True)
    return path


@pytest.fixture
async def open_instance(version: Path) -> AsyncIterator[OpenInstance]:
    """Opens instances of the model in `version`, on one thread; closes them after the test."""
    opened: list[Backend] = []
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="instance") as thread:

        async def run(function: Callable[..., Any], *args: Any) -> Any:
            return await asyncio.get_running_loop().run_in_executor(thread, function, *args)

        async def start(kind: type[Backend], config: ModelConfig, /, **context: Any) -> Backend:
            kind.check_config(config)
            backend = kind()
            await backend.initialize(InstanceContext("m_0_0", config, 1, version, run, **context))
            opened.append(backend)
            return backend

        yield start
        for backend in opened:
            await backend.finalize()


@pytest.fixture
def basic_pitch() -> Path:
    """The folder with one network as `nmp.onnx`, `nmp.tflite`, and TensorFlow's folder `nmp`."""
    spec = find_spec("basic_pitch")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the network is in a package: pip install --no-deps basic-pitch==0.4.0")
    return Path(spec.submodule_search_locations[0]) / "saved_models" / "icassp_2022"
