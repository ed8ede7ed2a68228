"""One ONNX Runtime instance on a thread of its own, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.core.backend import InstanceContext
from penstock.core.config import ModelConfig
from penstock_backends.onnxruntime import OnnxRuntimeBackend

Open = Callable[..., Awaitable[OnnxRuntimeBackend]]


@pytest.fixture
def version(tmp_path: Path) -> Path:
    """The directory of version 1 of a model."""
    path = tmp_path / "model" / "1"
    path.mkdir(parents=True)
    return path


@pytest.fixture
async def open_backend(version: Path) -> AsyncIterator[Open]:
    """Opens instances of the model in `version`; closes them after the test."""
    opened: list[OnnxRuntimeBackend] = []
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="instance") as thread:

        async def run(function: Callable[..., Any], *args: Any) -> Any:
            return await asyncio.get_running_loop().run_in_executor(thread, function, *args)

        async def start(config: ModelConfig, **context: Any) -> OnnxRuntimeBackend:
            OnnxRuntimeBackend.check_config(config)
            backend = OnnxRuntimeBackend()
            await backend.initialize(InstanceContext("m_0_0", config, 1, version, run, **context))
            opened.append(backend)
            return backend

        yield start
        for backend in opened:
            await backend.finalize()
