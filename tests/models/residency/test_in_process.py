"""`ModelResidency` and `Releases` of a server in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import until
from models.residency.repository import ONE, WAITS, Repository
from penstock.core.errors import (
    DeadlineExceededError,
    ExhaustedError,
    InferenceError,
    NoRoomError,
    NotFoundError,
    UnavailableError,
)
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceRequest, RequestScope
from penstock.core.stream import require_single
from penstock.core.tensor import Tensor
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.models.residency.residency import ModelResidency
from penstock.models.sizing.budget import MemoryBudget
from penstock.models.sizing.measured import MeasuredSizes
from penstock.server.answers import ServerMetadata
from penstock.server.server import InferenceServer
from penstock.system.reaper import Reaper


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "models")


@asynccontextmanager
async def serving(
    repository: Repository,
    models: float = 0,
    patience: float = 60,
    sizes: MeasuredSizes | None = None,
) -> AsyncIterator[InferenceServer]:
    """A server that loads models when they are called; its budget holds so many."""
    files, reaper = ModelRepository([repository.path]), Reaper()
    budget = MemoryBudget(int(models * ONE)) if models else None
    lifecycle = ModelLifecycle(files, VersionBuilder(lambda _: {}, reaper, budget=budget))
    server = InferenceServer(
        ServerMetadata("triton", "1"),
        files,
        lifecycle,
        explicit_control=True,
        alias_folders=[repository.path],
    )
    server.residency = ModelResidency(files, lifecycle, budget, timeout=patience, sizes=sizes)
    try:
        async with server.residency.running(), server.releases.running():
            await server.start(())
            yield server
    finally:
        await server.stop(ExitDeadline(5))
        reaper.close()


async def answer(server: InferenceServer, model: str, x: float = 0, **scope: Any) -> float:
    """The model's answer to one number."""
    inputs = {"X": Tensor.from_numpy(np.array([x], np.float32))}
    stream = server.infer(InferenceRequest(model, inputs=inputs, scope=RequestScope(**scope)))
    response = require_single([one async for one in stream])
    return float(response.outputs["Y"].numpy()[0])


async def states(server: InferenceServer) -> dict[str, str]:
    return {one.name: one.reason or one.state for one in await server.index()}


async def test_models_come_and_go(repository: Repository) -> None:
    for name in ("a", "b", "c"):
        repository.add(name, min_resident_seconds="0")
    repository.add_ensemble("pipe", "a", "b")
    async with serving(repository, models=2.5) as server:
        residency = server.residency
        assert residency is not None
        assert (await server.model_metadata("pipe", "")).name == "pipe"
        assert (await server.model_config("a", "")).backend == "python"
        assert await server.model_ready("a", "")
        assert server.resident("a") is False
        assert await server.ready()
        assert await answer(server, "pipe") == 2
        assert await answer(server, "c", 1) == 2
        assert (await states(server))["pipe"] == "on demand"
        assert residency.counts.loads["c", "call"] == 1
        assert residency.counts.unloads["pipe", "memory"] == 1
        assert residency.resident_bytes()["c"]["host"] > 0
        answers = [answer(server, name) for name in ("pipe", "c", "pipe", "c", "a")]
        assert await asyncio.gather(*answers) == [2, 1, 2, 1, 1]


async def test_what_cannot_be_is_refused(repository: Repository) -> None:
    repository.add("pinned", residency="always")
    repository.add("plain")
    repository.add("manual", residency="manual")
    repository.add("wrong", idle_seconds="-1")
    repository.add("broken", "x" * 4 + " = (")
    async with serving(repository, models=1.5) as server:
        assert (await states(server))["pinned"] == "READY"
        with pytest.raises(ExhaustedError, match="finds no room"):
            await answer(server, "plain")
        with pytest.raises(NotFoundError):
            await answer(server, "manual")
        with pytest.raises(InferenceError, match="number of seconds"):
            await answer(server, "wrong")
        assert "number of seconds" in (await states(server))["wrong"]
        await server.unload("pinned")
        for _ in range(2):
            with pytest.raises(UnavailableError, match="SyntaxError"):
                await answer(server, "broken")
        assert not await server.model_ready("broken", "")
        with pytest.raises(InferenceError):
            await answer(server, "nothing")


async def test_waits_end(repository: Repository) -> None:
    repository.add("slow")
    model = repository.path / "slow" / "1" / "model.py"
    model.write_text(model.read_text() + "\n    def initialize(self, args): time.sleep(1)\n")
    async with serving(repository, patience=0.2) as server:
        soon = asyncio.get_running_loop().time() + 0.05
        with pytest.raises(DeadlineExceededError):
            await answer(server, "slow", deadline=soon)
        with pytest.raises(UnavailableError, match=r"not loaded within 0\.2 seconds"):
            await answer(server, "slow")
        left = server.infer(InferenceRequest("slow"))
        left.close()
        stopped = server.infer(InferenceRequest("slow"))
        stopped.stop()


async def test_idle_models_go_and_files_are_followed(repository: Repository) -> None:
    repository.add("idle", idle_seconds="0.001", min_resident_seconds="0")
    async with serving(repository) as server:
        assert server.residency is not None
        assert await answer(server, "idle") == 1
        while server.resident("idle"):
            await server.residency.unload_idle()
            await asyncio.sleep(0)
        assert (await states(server))["idle"] == "on demand"
        repository.add("late")
        await server.follow(["late"], [])
        assert await answer(server, "late") == 1
        await server.follow([], ["late"])
        with pytest.raises(NotFoundError):
            await answer(server, "late")


def _never_loads(repository: Repository) -> None:
    repository.add("slow")
    model = repository.path / "slow" / "1" / "model.py"
    model.write_text(model.read_text() + "\n    def initialize(self, args): time.sleep(1000)\n")


async def _loading(server: InferenceServer, repository: Repository) -> asyncio.Future[float]:
    """A call of the model that never loads, once its process is there."""
    call = asyncio.ensure_future(answer(server, "slow"))
    before = repository.loads().count("slow")
    await until(lambda: repository.loads().count("slow") > before)
    return call


async def test_a_load_that_never_ends_is_given_up(repository: Repository) -> None:
    _never_loads(repository)
    async with serving(repository, patience=3) as server:
        assert server.residency is not None
        with pytest.raises(UnavailableError, match="not loaded within 3 seconds"):
            await answer(server, "slow")
        await until(lambda: server.residency is not None and not server.residency.states())


async def test_a_load_that_never_ends_is_ended_by_an_unload_and_by_the_end(
    repository: Repository,
) -> None:
    _never_loads(repository)
    repository.add("plain", min_resident_seconds="0")
    async with serving(repository, models=1.5) as server:
        residency = server.residency
        assert residency is not None
        call = await _loading(server, repository)
        assert residency.states() == {"slow": "loading"}
        await server.unload("slow")
        with pytest.raises(UnavailableError, match="was cancelled"):
            await call
        assert await answer(server, "plain") == 1
        call = await _loading(server, repository)
        residency.stop_loading()
        with pytest.raises(UnavailableError, match="Server exiting"):
            await call


async def test_requests_to_load_make_room(repository: Repository) -> None:
    for name in ("a", "b"):
        repository.add(name, min_resident_seconds="0")
    repository.add("pinned", residency="always")
    async with serving(repository, models=2.5, patience=8) as server:
        assert await answer(server, "a") == 1
        await server.load("b", {})
        assert (await states(server))["a"] == "on demand"
        model = repository.path / "pinned" / "1" / "model.py"
        model.write_text(model.read_text() + "\n# changed")
        await server.load("pinned", {})  # for which the other one goes
        assert (await states(server))["b"] == "on demand"
        await server.load("b", {})
        repository.add_weights("pinned", 10**9)
        with pytest.raises(NoRoomError, match="finds no room"):
            await server.load("pinned", {})


async def test_a_busy_caller_is_told_and_another_call_waits(repository: Repository) -> None:
    repository.add("caller", WAITS, min_resident_seconds="0")
    repository.add("plain", min_resident_seconds="0")
    async with serving(repository, models=1.5) as server:
        residency = server.residency
        assert residency is not None
        assert await answer(server, "caller") == 1
        calling = asyncio.ensure_future(answer(server, "caller", 2))
        await until((repository.path.parent / "waits-2").exists)
        with pytest.raises(NoRoomError, match="models that call it hold the rest"):
            await residency.bring("plain", callers={"caller"})
        assert await answer(server, "plain") == 1
        assert await calling == 3


async def test_models_are_measured_and_the_idle_rest(
    repository: Repository, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        repository.add(name, min_resident_seconds="0", rest_seconds="0.001")
        model = repository.path / name / "1" / "model.py"
        model.write_text("HELD = b'x' * 100_000_000\n" + model.read_text())
    sizes = MeasuredSizes(tmp_path / "sizes.json")
    async with serving(repository, models=5, sizes=sizes) as server:
        residency = server.residency
        assert residency is not None
        assert await answer(server, "a") == 1
        assert residency.resident_bytes()["a"]["host"] > 100_000_000
        assert await answer(server, "b") == 1
        while len(residency.resident_bytes()) > 1:  # two are more than the budget
            await residency.measure()
            await asyncio.sleep(0.01)
        while {*residency.states().values()} != {"shrunk"}:
            await residency.unload_idle()
            await asyncio.sleep(0.01)
        [name] = residency.states()
        assert await answer(server, name) == 1
        await residency.unload_idle()
    again = MeasuredSizes(tmp_path / "sizes.json")
    again.read()
    assert (tmp_path / "sizes.json").stat().st_size > 100


async def test_a_wrong_depth_of_sleep_is_refused(repository: Repository) -> None:
    repository.add("plain", sleep_level="3")
    async with serving(repository) as server:
        with pytest.raises(InferenceError, match="must be 1 or 2, got '3'"):
            await answer(server, "plain")


async def test_aliases(repository: Repository) -> None:
    for name in ("a", "b"):
        repository.add(name)
    file = repository.path / "aliases.toml"
    file.write_text('[declared]\ntargets = [ { model = "b" } ]\n')
    async with serving(repository) as server:
        releases = server.releases
        fields = {"targets": [{"model": "a", "weight": 50}, {"model": "b", "weight": 50}]}
        releases.set("alias", fields)
        assert [await answer(server, name, 1) for name in ("alias", "declared")] == [2, 2]
        assert (await server.model_metadata("alias", "")).name == "alias"
        assert (await server.model_config("alias", "")).backend == "python"
        assert await server.model_ready("alias", "")
        assert {"alias", "declared"} <= {*server.model_names()}
        assert (await states(server))["alias"].startswith("alias of 'a' 50 %")
        releases.roll_back("alias")
        assert [one.weight for one in releases.aliases()[0].targets] == [100, 0]
        file.write_text("[declared\n")
        await releases.read_files()
        assert releases.find("declared") is not None
        file.write_text('[other]\ntargets = [ { model = "none" } ]\n')
        await releases.read_files()
        assert releases.find("declared") is None
        file.write_text('[declared]\ntargets = [ { model = "b" } ]\n' + file.read_text())
        await releases.read_files()
        assert releases.find("declared") is not None
        file.unlink()  # in which one alias is wrong still
        await releases.read_files()
        assert releases.find("declared") is None
        releases.set("guarded", {**fields, "guard": {"min_requests": 1, "window": 60}})
        releases.watch(time.monotonic())
        for wrong in ("a", "alias2"):
            with pytest.raises(InferenceError):
                releases.set(wrong, {"targets": [{"model": "alias"}]})
        releases.remove("alias")
        assert len(releases.history("alias")) == 3
        for unknown in (releases.remove, releases.roll_back, releases.history):
            with pytest.raises(NotFoundError):
                unknown("never")


async def test_an_answer_that_is_there_at_once_names_its_target_too(repository: Repository) -> None:
    (repository.path / "same" / "1").mkdir(parents=True)
    tensor = 'name: "%s" data_type: TYPE_FP32 dims: [ -1 ]'
    (repository.path / "same" / "config.pbtxt").write_text(
        f'backend: "identity" input [ {{ {tensor % "X"} }} ] output [ {{ {tensor % "Y"} }} ]'
    )
    async with serving(repository) as server:
        await server.load("same", {})
        server.releases.set("alias", {"targets": [{"model": "same"}]})
        inputs = {"X": Tensor.from_numpy(np.array([1], np.float32))}
        stream = server.infer(InferenceRequest("alias", inputs=inputs))
        answers = [one async for one in stream]
        assert [one.parameters["penstock_target"] for one in answers] == ["same"]
