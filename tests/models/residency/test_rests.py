"""Idle models sleep, or free their caches, and a call wakes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeBackend, InstallBackend, Script, make_request, marks, until
from harness.serving import wait_until
from models.residency.repository import Repository
from models.residency.test_demand import Start, repository, start  # noqa: F401 - fixtures
from penstock.core.backend import Controllable
from penstock.core.errors import InvalidRequestError
from penstock.core.exit_deadline import ExitDeadline
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.models.residency.residency import ModelResidency
from penstock.server.answers import ServerMetadata
from penstock.server.server import InferenceServer
from penstock.system.reaper import Reaper

_CONFIG = """
backend: "engine"
input { name: "IN" data_type: TYPE_INT32 dims: [ 1, 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1, 1 ] }
parameters { key: "penstock.rest_seconds" value { string_value: "0.001" } }
parameters { key: "penstock.sleep_level" value { string_value: "2" } }
"""


class _Engine(Controllable, FakeBackend):
    """Sleeps while `falls_asleep` is open; refuses where it `refuses`. Lists its commands."""

    commands: list[tuple[str, dict[str, Any]]]
    falls_asleep: asyncio.Event
    refuses = False

    async def control(self, action: str, arguments: Mapping[str, Any]) -> Any:
        self.commands.append((action, dict(arguments)))
        if self.refuses:
            raise InvalidRequestError("this engine can sleep at level 0 only")
        if action == "sleep":
            await self.falls_asleep.wait()
        return {}


@asynccontextmanager
async def _serving(
    tmp_path: Path, install_backend: InstallBackend, **engine: Any
) -> AsyncIterator[tuple[InferenceServer, type[_Engine]]]:
    falls_asleep = asyncio.Event()
    falls_asleep.set()
    fields = {"script": Script(), "commands": [], "falls_asleep": falls_asleep, **engine}
    backend = type("Engine", (_Engine,), fields)
    install_backend("engine", backend)
    (tmp_path / "models" / "lm" / "1").mkdir(parents=True)
    (tmp_path / "models" / "lm" / "config.pbtxt").write_text(_CONFIG)
    files, reaper = ModelRepository([tmp_path / "models"]), Reaper()
    lifecycle = ModelLifecycle(files, VersionBuilder(lambda _: {}, reaper))
    server = InferenceServer(ServerMetadata("triton", "1"), files, lifecycle, explicit_control=True)
    server.residency = ModelResidency(files, lifecycle, timeout=60)
    await server.start(())
    try:
        yield server, backend
    finally:
        await server.stop(ExitDeadline(5))
        reaper.close()


async def _answer(server: InferenceServer) -> list[str]:
    return await marks(server.infer(make_request("x", model_name="lm")))


async def _rest(server: InferenceServer) -> str:
    """How the model rests, once it does."""
    residency = server.residency
    assert residency is not None
    while not residency.rests.state("lm"):
        await residency.unload_idle()
        await asyncio.sleep(0)
    [entry] = await server.index()
    assert entry.state == "READY"
    return entry.reason


async def test_an_idle_engine_sleeps_and_a_call_wakes_it(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    async with _serving(tmp_path, install_backend) as (server, engine):
        for _ in range(2):
            assert await _answer(server) == ["x"]
            assert await _rest(server) == "asleep"
        assert await server.model_ready("lm", "")
        assert await asyncio.gather(*(_answer(server) for _ in range(9))) == [["x"]] * 9
        assert engine.commands == [("sleep", {"level": 2, "mode": "wait"}), ("wake", {})] * 2
        residency = server.residency
        assert residency is not None
        assert residency.rests.wakes == {("lm", "call"): 2}
        assert [entry.reason for entry in await server.index()] == [""]


async def test_a_call_that_comes_while_it_falls_asleep_waits_until_it_is_awake(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    async with _serving(tmp_path, install_backend) as (server, engine):
        assert await _answer(server) == ["x"]
        engine.falls_asleep.clear()
        resting = asyncio.ensure_future(_rest_once(server))
        await until(lambda: bool(engine.commands))
        cancelled = server.infer(make_request("gone", model_name="lm"))
        call = asyncio.ensure_future(_answer(server))
        await asyncio.sleep(0)
        cancelled.close()
        engine.falls_asleep.set()
        assert await call == ["x"]
        await resting
        assert [action for action, _ in engine.commands][:2] == ["sleep", "wake"]
        assert engine.script.batches == [["x"], ["x"]]


async def _rest_once(server: InferenceServer) -> None:
    residency = server.residency
    assert residency is not None
    while not residency.rests.wakes:
        await residency.unload_idle()
        await asyncio.sleep(0)


async def test_an_engine_that_refuses_is_told_once_and_shrunk(
    tmp_path: Path, install_backend: InstallBackend, caplog: pytest.LogCaptureFixture
) -> None:
    async with _serving(tmp_path, install_backend, refuses=True) as (server, engine):
        for _ in range(2):
            assert await _answer(server) == ["x"]
            assert await _rest(server) == "shrunk"
        assert len(engine.commands) == 1
    told = [one for one in caplog.records if "cannot sleep, and is shrunk" in one.getMessage()]
    assert len(told) == 1


async def test_a_model_that_is_gone_is_told_as_gone_at_once(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    async with _serving(tmp_path, install_backend, refuses=True) as (server, _):
        assert await _answer(server) == ["x"]
        assert await _rest(server) == "shrunk"
        residency = server.residency
        assert residency is not None
        assert residency.states() == {"lm": "shrunk"}
        await server.unload("lm")
        assert residency.states() == {}


async def test_a_sleeping_model_is_unloaded(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    async with _serving(tmp_path, install_backend) as (server, engine):
        assert await _answer(server) == ["x"]
        assert await _rest(server) == "asleep"
    assert engine.script.finalized == 1


_FREES = """
        held = getattr(self, "held", None)
        if held is None:
            self.held = held = [bytearray(1000) for _ in range(60_000)]
            held.append(bytearray(1000))
            del held[:-1]
"""


def test_a_python_model_is_shrunk_and_answers_on(
    start: Start,  # noqa: F811
    repository: Repository,  # noqa: F811
) -> None:
    repository.add("plain", _FREES, rest_seconds="0.5")
    with start("--spare-processes=0") as server:
        assert server.answer("plain") == 1
        [process] = [
            pid
            for pid in server.served.family()
            if b"bootstrap" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        before = _resident(process)
        wait_until(lambda: server.states() == {"plain": "shrunk"})
        wait_until(lambda: _resident(process) < before - 20_000)
        assert server.answer("plain") == 1
        assert "model 'plain' is idle: it is shrunk" in server.served.log.read_text()
        page = server.page()
        assert 'penstock_model_residency_state{model="plain",state=' in page


def _resident(pid: int) -> int:
    """KiB of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
