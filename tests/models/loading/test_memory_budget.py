"""Models that are loaded within a memory budget: what they take, and when they give it back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fakes import FakeBackend, FakeInstance, InstallBackend, Script, make_request, marks, until
from models.sizing.headers.files import safetensors
from penstock.core.backend import InstanceContext
from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
from penstock.core.errors import InvalidRequestError, ModelLoadError
from penstock.hosting.parent.process import ProcessState
from penstock.models.loading import build_version
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.models.serving.instance import ModelInstance
from penstock.models.sizing.budget import MemoryBudget
from penstock.models.sizing.estimate import Engine, with_headroom
from penstock.system.reaper import Reaper

_MIB = 1 << 20
_CONFIG = """
backend: "fake"
input { name: "IN" data_type: TYPE_INT32 dims: [ 1, 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1, 1 ] }
"""
_BUFFERS = 4 * 8
"""Bytes of the tensors above, as they are estimated."""


def _one(weights: int) -> int:
    """What a model of one instance and so many MiB of weights takes."""
    return with_headroom(weights * _MIB + Engine.of("fake").process + _BUFFERS)


class _Backend(FakeBackend):
    """Does not start while a file `broken` lies beside the repository; nor ends with `endless`.

    Each completed configuration is listed in `completed` there, and says two instances if there is
    a file `two`.
    """

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        beside = version_path.parent.parent.parent
        with (beside / "completed").open("a") as file:
            file.write(f"{config.name} ")
        if not (beside / "two").exists():
            return config
        return replace(config, instance_group=(InstanceGroup(InstanceKind.KIND_CPU, count=2),))

    async def initialize(self, context: InstanceContext) -> None:
        await super().initialize(context)
        beside = context.model_path.parent.parent
        if (beside / "broken").exists():
            raise ModelLoadError("broken")
        if (beside / "endless").exists():
            await asyncio.Event().wait()


@dataclass
class House:
    """A lifecycle over models with weights of chosen sizes, and 1000 MiB for all of them."""

    path: Path
    script: Script
    budget: MemoryBudget
    lifecycle: ModelLifecycle

    def write(self, name: str, weights: int, more: str = "") -> None:
        """A model with so many MiB of weights, which take no place on the disk."""
        version = self.path / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        (version.parent / "config.pbtxt").write_text(_CONFIG + more)
        whole = safetensors({"a": ("U8", [0], 0)}).replace(b"[0, 0]", b"[0, %d]" % (weights * _MIB))
        length = len(whole) - 8
        with (version / "model.safetensors").open("wb") as file:
            file.write(length.to_bytes(8, "little") + whole[8:])
            file.truncate(8 + length + weights * _MIB)

    async def unload(self, name: str) -> None:
        await self.lifecycle.unload(name)
        await self.lifecycle.wait_unloaded()


@pytest.fixture
def house(tmp_path: Path, install_backend: InstallBackend) -> House:
    script = Script()
    install_backend("fake", type("Scripted", (_Backend,), {"script": script}))
    models = tmp_path / "models"
    models.mkdir()
    budget = MemoryBudget(1000 * _MIB)
    builder = VersionBuilder(lambda _: {}, Reaper(), budget=budget)
    lifecycle = ModelLifecycle(ModelRepository([models]), builder)
    return House(models, script, budget, lifecycle)


async def test_a_model_that_does_not_fit_is_refused_before_it_starts(house: House) -> None:
    house.write("a", 500)
    house.write("b", 500)
    await house.lifecycle.load("a")
    with pytest.raises(InvalidRequestError, match=r"'b' needs 607 MiB.*unload 'a' \(607 MiB\)"):
        await house.lifecycle.load("b")
    assert len(house.script.contexts) == 1
    assert house.budget.used == _one(500)
    await house.lifecycle.close()
    assert house.budget.used == 0


async def test_a_model_that_does_not_fit_is_refused_before_its_files_are_opened(
    house: House,
) -> None:
    """Completion of a configuration may open the whole model."""
    house.write("a", 2000)
    with pytest.raises(InvalidRequestError, match="of the --memory-budget"):
        await house.lifecycle.load("a")
    assert not (house.path.parent / "completed").exists()
    assert house.budget.used == 0
    await house.lifecycle.close()


async def test_what_a_completed_configuration_needs_more_is_claimed(house: House) -> None:
    house.write("a", 200)
    (house.path.parent / "two").touch()
    await house.lifecycle.load("a")
    assert house.budget.used == pytest.approx(2 * _one(200), abs=2)
    house.write("b", 300)
    with pytest.raises(InvalidRequestError, match="of the --memory-budget"):
        await house.lifecycle.load("b")
    assert house.budget.used == pytest.approx(2 * _one(200), abs=2)
    await house.lifecycle.close()
    assert house.budget.used == 0


async def test_an_unload_makes_room(house: House) -> None:
    house.write("a", 500)
    house.write("b", 500)
    await house.lifecycle.load("a")
    await house.unload("a")
    await house.lifecycle.load("b")
    assert house.budget.used == _one(500)
    await house.lifecycle.close()


async def test_room_is_made_once_the_last_request_is_answered(house: House) -> None:
    house.write("a", 500)
    await house.lifecycle.load("a")
    house.script.gate.clear()
    stream = house.lifecycle.catalog.find("a", 1).infer(make_request("x"))
    await until(lambda: bool(house.script.batches))
    await house.lifecycle.unload("a")
    assert house.budget.used == _one(500)
    house.script.gate.set()
    assert await marks(stream) == ["x"]
    await house.lifecycle.wait_unloaded()
    assert house.budget.used == 0


async def test_a_failed_load_gives_back(house: House) -> None:
    house.write("a", 500)
    (house.path.parent / "broken").touch()
    with pytest.raises(InvalidRequestError, match="broken"):
        await house.lifecycle.load("a")
    assert house.budget.used == 0
    await house.lifecycle.close()


async def test_a_cancelled_load_gives_back(house: House) -> None:
    house.write("a", 500)
    (house.path.parent / "endless").touch()
    loading = asyncio.ensure_future(house.lifecycle.load("a"))
    await until(lambda: bool(house.script.contexts))
    assert house.budget.used == _one(500)
    await house.lifecycle.close()
    await asyncio.wait([loading])
    assert house.budget.used == 0


async def test_a_load_that_is_cancelled_at_its_very_end_stops_what_has_started(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimming, goes_on = threading.Event(), threading.Event()

    def trim() -> None:
        trimming.set()
        goes_on.wait(20)

    monkeypatch.setattr(build_version, "return_freed_memory", trim)
    house.write("a", 500)
    loading = asyncio.ensure_future(house.lifecycle.load("a"))
    await until(trimming.is_set)
    closing = asyncio.ensure_future(house.lifecycle.close())
    await until(lambda: house.script.finalized == 1)
    goes_on.set()
    await closing
    await asyncio.wait([loading])
    assert house.budget.used == 0


async def test_a_load_of_a_process_leaves_the_servers_memory_alone(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    trims: list[int] = []
    monkeypatch.setattr(build_version, "return_freed_memory", lambda: trims.append(1))
    instance = FakeInstance()
    await build_version.start_instances([instance], _as_it_is)
    assert len(trims) == 1
    in_process = FakeInstance()
    in_process.process = ProcessState(1, 0)
    await build_version.start_instances([in_process], _as_it_is)
    await build_version.start_instances([], _as_it_is)
    assert len(trims) == 1


async def _as_it_is(_: ModelInstance) -> None:
    """What is to be done with a started instance: nothing."""


async def test_a_reload_counts_both_while_both_live(house: House) -> None:
    house.write("a", 300)
    await house.lifecycle.load("a")
    house.script.gate.clear()
    stream = house.lifecycle.catalog.find("a", 1).infer(make_request("x"))
    await until(lambda: bool(house.script.batches))
    house.write("a", 200)
    await house.lifecycle.load("a")
    assert house.budget.used == _one(300) + _one(200)
    house.script.gate.set()
    assert await marks(stream) == ["x"]
    await until(lambda: house.budget.used == _one(200))
    await house.lifecycle.close()


async def test_a_reload_that_does_not_fit_beside_the_old_leaves_it_serving(house: House) -> None:
    house.write("a", 500)
    await house.lifecycle.load("a")
    house.write("a", 501)
    with pytest.raises(InvalidRequestError, match="of the --memory-budget"):
        await house.lifecycle.load("a")
    assert await marks(house.lifecycle.catalog.find("a", 1).infer(make_request("x"))) == ["x"]
    assert house.budget.used == _one(500)
    await house.lifecycle.close()


def _groups(count: int) -> str:
    return f"instance_group {{ count: {count} }}"


async def test_more_and_fewer_instances_are_counted(house: House) -> None:
    house.write("a", 200, _groups(1))
    await house.lifecycle.load("a")
    (house.path / "a" / "config.pbtxt").write_text(_CONFIG + _groups(2))
    await house.lifecycle.load("a")
    assert house.budget.used == pytest.approx(2 * _one(200), abs=2)
    (house.path / "a" / "config.pbtxt").write_text(_CONFIG + _groups(1))
    await house.lifecycle.load("a")
    await house.lifecycle.wait_unloaded()
    assert house.budget.used == _one(200)
    await house.lifecycle.close()


async def test_instances_that_do_not_fit_are_not_started(house: House) -> None:
    house.write("a", 200, _groups(1))
    await house.lifecycle.load("a")
    (house.path / "a" / "config.pbtxt").write_text(_CONFIG + _groups(9))
    with pytest.raises(InvalidRequestError, match="1 instead of 9 instances"):
        await house.lifecycle.load("a")
    assert len(house.script.contexts) == 1
    assert house.budget.used == _one(200)
    await house.lifecycle.close()


async def test_instances_that_fail_to_start_give_back(house: House) -> None:
    house.write("a", 200, _groups(1))
    await house.lifecycle.load("a")
    (house.path.parent / "broken").touch()
    (house.path / "a" / "config.pbtxt").write_text(_CONFIG + _groups(2))
    with pytest.raises(InvalidRequestError, match="broken"):
        await house.lifecycle.load("a")
    assert house.budget.used == _one(200)
    await house.lifecycle.close()


async def test_a_damaged_file_is_one_error(house: House) -> None:
    house.write("a", 1)
    (house.path / "a" / "1" / "model.safetensors").write_bytes(b"\xff" * 8)
    with pytest.raises(InvalidRequestError, match=r"model\.safetensors' is cut short"):
        await house.lifecycle.load("a")
    assert house.budget.used == 0
    await house.lifecycle.close()
