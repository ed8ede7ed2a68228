"""A server with one scripted language model, and with several."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import InstallBackend
from penstock.server.server import InferenceServer
from penstock.settings import GrpcSettings
from rpc.engine.publisher import Publisher
from rpc.engine.scripted import EmbeddingBackend, ScriptedBackend, stub_of, write_models
from rpc.serving import open_models


@pytest.fixture(autouse=True)
def forgotten() -> None:
    ScriptedBackend.asked.clear()
    ScriptedBackend.left.clear()


@pytest.fixture
async def server(tmp_path: Path, install_backend: InstallBackend) -> AsyncIterator[InferenceServer]:
    install_backend("scripted", EmbeddingBackend)
    async with open_models(write_models(tmp_path / "models", "numbers")) as server:
        yield server


@pytest.fixture
async def stub(server: InferenceServer, local: GrpcSettings) -> AsyncIterator[Any]:
    async with stub_of(server, local) as stub:
        yield stub


@pytest.fixture
async def publisher(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Publisher]:
    zmq: Any = pytest.importorskip("zmq.asyncio")
    import zmq as plain

    with zmq.Context() as context:
        socket = context.socket(plain.XPUB)
        socket.linger = 0
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        facts = replace(ScriptedBackend.facts, kv_events={"0": f"tcp://127.0.0.1:{port}"})
        monkeypatch.setattr(ScriptedBackend, "facts", facts)
        yield Publisher(socket)
        socket.close()
