"""The configuration that a model is loaded with, and those that are refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fakes import FakeBackend, write_model
from models.loading.build_version.house import TENSORS, House
from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError, ModelLoadError, UnsupportedError
from penstock.core.request import InferenceRequest
from penstock.core.tensor import Tensor
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.repository.repository import ModelRepository
from penstock.system.reaper import Reaper


class Completing(FakeBackend):
    """Knows its own batch size."""

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        return replace(config, max_batch_size=int(settings["size"]))


class Wanting(FakeBackend):
    """Serves no model without inputs."""

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        if not config.input:
            raise ConfigError("there are no inputs")


@pytest.mark.contract("AC-01")
@pytest.mark.parametrize(("auto_complete", "size"), [(True, 32), (False, 8)])
async def test_a_backend_completes_the_configuration_unless_that_is_off(
    house: House, auto_complete: bool, size: int
) -> None:
    model = await house.load(
        backend=Completing, auto_complete=auto_complete, settings_of=lambda _: {"size": "32"}
    )
    assert model.config.max_batch_size == size
    await model.stop()


async def test_what_a_configuration_leaves_out_is_filled_in(house: House) -> None:
    model = await house.load(f"{TENSORS} dynamic_batching {{ }}")
    assert model.config.dynamic_batching is not None
    assert model.config.dynamic_batching.preferred_batch_size == (8,)
    assert model.config.instance_group[0].count == 1
    await model.stop()


async def test_a_configuration_in_a_version_folder_is_named_where_one_is_lacking(
    house: House,
) -> None:
    """The model's name says its backend, which would have completed the rest."""
    (house.path / "m.fake" / "1").mkdir(parents=True)
    lost = house.path / "m.fake" / "1" / "config.pbtxt"
    lost.write_text(TENSORS)
    house.install(Wanting)
    files = ModelRepository([house.path]).read("m.fake")
    with pytest.raises(ConfigError, match=f"no inputs; '{lost}' is not read: it belongs in"):
        await VersionBuilder(lambda _: {}, Reaper()).build(files, 1)


async def test_what_is_wrong_in_a_configuration_is_refused_before_anything_runs(
    house: House,
) -> None:
    with pytest.raises(ModelLoadError, match="must specify 'dims'"):
        await house.load('input { name: "IN" data_type: TYPE_INT32 }')
    assert house.script.contexts == []


async def test_what_is_not_supported_is_refused_before_anything_runs(house: House) -> None:
    with pytest.raises(UnsupportedError, match="cc_model_filenames"):
        await house.load(f'{TENSORS} cc_model_filenames {{ key: "7.5" value: "mine" }}')
    assert house.script.contexts == []


async def test_a_backend_may_refuse_a_configuration(house: House) -> None:
    class Picky(FakeBackend):
        @classmethod
        def check_config(cls, config: ModelConfig) -> None:
            raise ConfigError("not with me")

    with pytest.raises(ConfigError, match="not with me"):
        await house.load(backend=Picky)
    assert house.script.contexts == []


async def test_a_backend_that_is_not_installed_fails_the_load(house: House) -> None:
    write_model(house.path, config=TENSORS)
    (house.path / "m" / "config.pbtxt").write_text('backend: "nope"')
    builder = VersionBuilder(lambda _: {}, Reaper())
    with pytest.raises(ModelLoadError, match="unable to find backend 'nope'"):
        await builder.build(ModelRepository([house.path]).read("m"), 1)


@pytest.mark.parametrize("host", ["moon", "Thread"])
async def test_a_place_that_no_instance_can_live_in_is_refused(house: House, host: str) -> None:
    parameter = f'key: "penstock.host" value {{ string_value: "{host}" }}'
    with pytest.raises(ConfigError, match=f"'penstock.host' must be .*, got '{host}'"):
        await house.load(f"{TENSORS} parameters {{ {parameter} }}")


@pytest.mark.slow
async def test_a_configuration_may_send_an_instance_to_a_process(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "m" / "config.pbtxt").write_text(
        f'backend: "identity" {TENSORS} parameters {{ key: "penstock.host"'
        ' value { string_value: "process" } }'
    )
    reaper = Reaper()
    model = await VersionBuilder(lambda _: {}, reaper).build(
        ModelRepository([tmp_path]).read("m"), 1
    )
    tensor = Tensor.from_numpy(np.array([[7]], np.int32))
    (response,) = [r async for r in model.infer(InferenceRequest("m", inputs={"IN": tensor}))]
    assert response.outputs["OUT"].numpy().tolist() == [[7]]
    assert _children() != set()
    await model.stop()
    assert _children() == set()
    reaper.close()


def _children() -> set[str]:
    """Processes of ours that host a model."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return {pid for pid, command in commands.items() if b"bootstrap" in command}
