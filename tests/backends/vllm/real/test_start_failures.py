"""Errors of the engine's own processes while it starts: what they say is in the load's error."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from backends.vllm.real.conftest import IN_CORE, SETTINGS
from penstock.core.config import ModelConfig
from penstock.core.errors import ModelLoadError
from penstock.testing import running
from penstock_backends.vllm import VllmBackend

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def load_error(folder: Path, model: Path, **changed: Any) -> str:
    """What is said of a model that cannot be loaded."""
    values = {**SETTINGS, "model": str(model), "enable_lora": False, **changed}
    (folder / "model.json").write_text(json.dumps(values))
    with pytest.raises(ModelLoadError) as failed:
        async with running(VllmBackend, ModelConfig(name="m"), folder):
            pass
    return failed.value.message


async def test_error_of_the_engine_is_told_with_the_way_out(version: Path, tmp_path: Path) -> None:
    """A model that is loaded anew, whose port its version that serves still has."""
    with socket.create_server(("", 0)) as serving:
        port = serving.getsockname()[1]
        events = {"enable_kv_cache_events": True, "endpoint": f"tcp://*:{port}"}
        said = await load_error(tmp_path, version / "model", kv_events_config=events, **IN_CORE)
    assert f"Address already in use (addr='tcp://*:{port}')" in said
    assert "unload the model before it is loaded again" in said
    assert "root cause" not in said


async def test_error_of_a_worker_is_told(version: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    shutil.copytree(version / "model", torn)
    weights = torn / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    said = await load_error(tmp_path, torn)
    assert "SafetensorError" in said
    assert "root cause" not in said
