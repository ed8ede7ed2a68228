"""How long a model has been idle: since its last request, whatever became of it, by no clock that
can be set.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes import InstallBackend, Script, make_request, marks, until
from penstock.caching.local import LocalCache
from penstock.core.errors import InferenceError
from penstock.core.exit_deadline import ExitDeadline
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.models.residency.memory import ModelMemory
from penstock.models.residency.residents import Residents
from penstock.server.answers import ServerMetadata
from penstock.server.server import InferenceServer
from penstock.system.reaper import Reaper

_CONFIG = """
backend: "scripted"
input { name: "IN" data_type: TYPE_INT32 dims: [ 1, 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1, 1 ] }
response_cache { enable: true }
"""
_A_WHILE = 0.3


@asynccontextmanager
async def _serving(
    path: Path, install_backend: InstallBackend, script: Script
) -> AsyncIterator[tuple[InferenceServer, Residents]]:
    """One loaded model with a cache, and what is known of how long it was idle."""
    install_backend("scripted", script.backend)
    (path / "m" / "1").mkdir(parents=True)
    (path / "m" / "config.pbtxt").write_text(_CONFIG)
    files, reaper = ModelRepository([path]), Reaper()
    builder = VersionBuilder(lambda _: {}, reaper, cache=LocalCache(100_000))
    lifecycle = ModelLifecycle(files, builder)
    server = InferenceServer(ServerMetadata("triton", "1"), files, lifecycle)
    await server.start(["m"])
    try:
        yield server, Residents(lifecycle, {}, ModelMemory(None))
    finally:
        await server.stop(ExitDeadline(5))
        reaper.close()


async def _later(seconds: float) -> None:
    end = time.monotonic() + seconds
    await until(lambda: time.monotonic() >= end)


def _idle(residents: Residents) -> float:
    [found] = residents.found()
    return found.idle_seconds


def _fails(request: Any) -> InferenceError:
    return InferenceError("it cannot")


@pytest.mark.parametrize("kind", ["answered", "failed", "from the cache"])
async def test_a_request_ends_idleness_and_no_clock_that_is_set_lengthens_it(
    kind: str, tmp_path: Path, install_backend: InstallBackend
) -> None:
    script = Script(answer=_fails) if kind == "failed" else Script()
    async with _serving(tmp_path, install_backend, script) as (server, residents):
        for _ in range(2):
            await _later(_A_WHILE)
            begun = time.monotonic()
            if kind == "failed":
                with pytest.raises(InferenceError, match="it cannot"):
                    await marks(server.infer(make_request("x")))
            else:
                number = 0.0 if kind == "from the cache" else begun
                await marks(server.infer(make_request("x", parameters={"n": number})))
            residents.found()  # a first look, as each second
            await _later(_A_WHILE)
            assert _A_WHILE / 2 <= _idle(residents) <= time.monotonic() - begun
        assert len(script.batches) == (1 if kind == "from the cache" else 2)


async def test_a_model_without_a_request_is_idle_since_it_was_loaded(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    async with _serving(tmp_path, install_backend, Script()) as (_, residents):
        begun = time.monotonic()
        residents.begin("m")
        await _later(_A_WHILE)
        assert _A_WHILE <= _idle(residents) <= time.monotonic() - begun
