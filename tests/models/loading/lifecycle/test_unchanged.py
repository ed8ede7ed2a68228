"""Loading once more what has not changed does nothing, as with the real server."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes import FakeBackend, InstallBackend, Script, make_request
from penstock.core.backend import InstanceContext
from penstock.core.errors import InferenceError
from penstock.core.request import ANY_VERSION
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.override import ModelOverride
from penstock.models.repository.repository import ModelRepository
from penstock.models.serving.loaded_model import LoadedModel
from penstock.system.reaper import Reaper

pytestmark = pytest.mark.contract("X-17")

CONFIG = """
backend: "fake" max_batch_size: 8
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
output { name: "OUT" data_type: TYPE_INT32 dims: -1 }
"""
ENSEMBLE = """
platform: "ensemble" max_batch_size: 8
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
output { name: "OUT" data_type: TYPE_INT32 dims: -1 }
ensemble_scheduling { step { model_name: "m" model_version: -1
    input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } }
"""


class Weighing(FakeBackend):
    """Cannot start with bad weights."""

    async def initialize(self, context: InstanceContext) -> None:
        await super().initialize(context)
        weights = context.version_path / "weights"
        if weights.exists() and weights.read_text() == "bad":
            raise RuntimeError("bad weights")


@dataclass
class House:
    """A lifecycle over a plain model `m` and an ensemble of it, on a scripted backend."""

    path: Path
    script: Script
    lifecycle: ModelLifecycle

    async def load(self, name: str = "m", override: ModelOverride | None = None) -> LoadedModel:
        await self.lifecycle.load(name, override)
        return self.lifecycle.catalog.find(name, ANY_VERSION)

    @property
    def starts(self) -> int:
        """How many instances have been started so far."""
        return len(self.script.contexts)


@pytest.fixture
def house(tmp_path: Path, install_backend: InstallBackend) -> House:
    for name, config in (("m", CONFIG), ("e", ENSEMBLE)):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(config)
    (tmp_path / "m" / "1" / "weights").write_text("old")
    script = Script()
    install_backend("fake", type("Scripted", (Weighing,), {"script": script}))
    builder = VersionBuilder(lambda _: {}, Reaper())
    return House(tmp_path, script, ModelLifecycle(ModelRepository([tmp_path]), builder))


def batching(rows: int) -> ModelOverride:
    """A configuration that comes with a request."""
    tensor = {"data_type": "TYPE_INT32", "dims": [-1]}
    inputs, outputs = [{"name": "IN", **tensor}], [{"name": "OUT", **tensor}]
    config = {"backend": "fake", "max_batch_size": rows, "input": inputs, "output": outputs}
    return ModelOverride(json.dumps(config))


async def test_nothing_is_started_and_counters_go_on(house: House) -> None:
    model = await house.load()
    assert [response async for response in model.infer(make_request())]
    assert await house.load() is model
    assert house.starts == 1
    assert model.statistics.success.count == 1
    await house.lifecycle.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: os.utime(folder / "1" / "weights", (1, 1)),
        lambda folder: (folder / "1" / "more").write_text(""),
        lambda folder: (folder / "labels.txt").write_text(""),
        lambda folder: (folder / "config.pbtxt").write_text(CONFIG + "dynamic_batching { }"),
    ],
)
async def test_any_file_of_the_model_may_have_changed(
    house: House, change: Callable[[Path], object]
) -> None:
    model = await house.load()
    change(house.path / "m")
    assert await house.load() is not model
    assert house.starts == 2
    await house.lifecycle.close()


@pytest.mark.contract("R-35")
@pytest.mark.parametrize("file", ["config.pbtxt", "configs/mine.pbtxt"])
async def test_a_touched_configuration_is_a_change(house: House, file: str) -> None:
    (house.path / "m" / "configs").mkdir()
    (house.path / "m" / file).write_text(CONFIG)
    model = await house.load()
    os.utime(house.path / "m" / file, (1, 1))
    assert await house.load() is not model
    assert house.starts == 2
    await house.lifecycle.close()


async def test_a_model_that_was_unloaded_is_loaded(house: House) -> None:
    await house.load()
    await house.lifecycle.unload("m")
    await house.lifecycle.wait_unloaded()
    await house.load()
    assert house.starts == 2
    await house.lifecycle.close()


async def test_a_new_version_is_loaded_beside_one_that_stays(house: House) -> None:
    (house.path / "m" / "config.pbtxt").write_text(CONFIG + "version_policy { all { } }")
    first = await house.load()
    (house.path / "m" / "2").mkdir()
    second = await house.load()
    assert (second.version, house.starts) == (2, 2)
    assert house.lifecycle.catalog.find("m", 1) is first
    await house.lifecycle.close()


async def test_a_configuration_of_a_request_holds_until_a_load_without(house: House) -> None:
    model = await house.load(override=batching(3))
    assert model.config.max_batch_size == 3
    assert await house.load(override=batching(3)) is model
    assert (await house.load()).config.max_batch_size == 8
    assert house.starts == 2
    await house.lifecycle.close()


async def test_the_configuration_that_serves_may_come_back_in_a_request(house: House) -> None:
    model = await house.load()
    assert await house.load(override=batching(8)) is model
    await house.lifecycle.close()


async def test_another_configuration_of_a_request_is_a_change(house: House) -> None:
    await house.load(override=batching(3))
    assert (await house.load(override=batching(4))).config.max_batch_size == 4
    await house.lifecycle.close()


async def test_a_refused_configuration_leaves_nothing_behind(house: House) -> None:
    model = await house.load()
    with pytest.raises(InferenceError):
        await house.load(override=batching(-1))
    assert await house.load() is model
    await house.lifecycle.close()


async def test_files_of_a_request_are_loaded_each_time_and_given_up_without(house: House) -> None:
    override = ModelOverride(batching(8).config, {"file:1/weights": b"new"})
    first = await house.load(override=override)
    second = await house.load(override=override)
    assert second is not first
    assert await house.load() is not second
    assert house.starts == 3
    await house.lifecycle.close()


async def test_a_load_that_failed_is_tried_again(house: House) -> None:
    model = await house.load()
    (house.path / "m" / "1" / "weights").write_text("bad")
    for _ in range(2):
        with pytest.raises(InferenceError, match="bad weights"):
            await house.load()
    assert house.lifecycle.catalog.find("m", 1) is model
    (house.path / "m" / "1" / "weights").write_text("good")
    assert await house.load() is not model
    await house.lifecycle.close()


async def test_an_ensemble_of_parts_that_have_not_changed_stays(house: House) -> None:
    ensemble = await house.load("e")
    assert await house.load("e") is ensemble
    await house.load("m")
    assert await house.load("e") is ensemble
    assert house.starts == 1
    await house.lifecycle.close()


@pytest.mark.contract("E-17")
@pytest.mark.parametrize("asked", ["e", "m"])
async def test_an_ensemble_is_made_anew_with_a_part_that_has_changed(
    house: House, asked: str
) -> None:
    ensemble = await house.load("e")
    os.utime(house.path / "m" / "1" / "weights", (1, 1))
    await house.load(asked)
    assert house.starts == 2
    assert house.lifecycle.catalog.find("e", ANY_VERSION) is not ensemble
    await house.lifecycle.close()


async def test_a_part_whose_files_are_gone_serves_on_in_its_ensemble(house: House) -> None:
    await house.load("e")
    part = house.lifecycle.catalog.find("m", 1)
    shutil.rmtree(house.path / "m")
    os.utime(house.path / "e" / "config.pbtxt", (1, 1))
    await house.load("e")
    assert house.lifecycle.catalog.find("m", 1) is part
    await house.lifecycle.close()


async def test_a_model_whose_instance_is_down_is_loaded_anew(house: House) -> None:
    model = await house.load()
    model.instances = [Down()]  # type: ignore[list-item]
    assert await house.load() is not model
    await house.lifecycle.close()


class Down:
    """In the place of an instance that cannot work."""

    alive = False
    lost = False
    passive = False
    why_unavailable = "it is down"

    async def stop(self) -> None:
        """It is down already."""
