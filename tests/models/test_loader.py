"""From the files of a model to a model that serves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fakes import (
    FakeBackend,
    InstallBackend,
    Script,
    make_request,
    marks,
    turns,
    until,
    write_model,
)
from penstock.caching.local import LocalCache
from penstock.core.backend import InstanceContext
from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
from penstock.core.errors import ConfigError, ModelLoadError, UnavailableError, UnsupportedError
from penstock.core.placement import Placement
from penstock.core.request import InferenceRequest
from penstock.core.tensor import Tensor
from penstock.hosting.reaper import Reaper
from penstock.models.contexts import instance_contexts
from penstock.models.loader import ModelLoader
from penstock.models.model import Model
from penstock.models.repository import ModelRepository
from penstock.scheduling.rate_limiter import Limit, RateLimiter

TENSORS = """
max_batch_size: 8
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
output { name: "OUT" data_type: TYPE_INT32 dims: -1 }
"""


class House:
    """A loader, a repository, and the backend `fake` installed as another distribution's."""

    def __init__(self, path: Path, install: InstallBackend) -> None:
        self.path = path
        self.script = Script()
        self._install = install
        self._installed = False

    async def load(
        self,
        config: str = TENSORS,
        backend: type[FakeBackend] = FakeBackend,
        **options: Any,
    ) -> Model:
        """Version 1 of a model with this configuration, on this backend, playing the script."""
        if not self._installed:
            self._install("fake", type("Scripted", (backend,), {"script": self.script}))
            self._installed = True
        write_model(self.path, config=config)
        loader = ModelLoader(options.pop("settings_of", lambda _: {}), Reaper(), **options)
        return await loader.load(ModelRepository([self.path]).read("m"), 1)

    @property
    def names(self) -> list[str]:
        return sorted(context.name for context in self.script.contexts)


@pytest.fixture
async def house(tmp_path: Path, install_backend: InstallBackend) -> House:
    path = tmp_path / "models"
    path.mkdir()
    return House(path, install_backend)


# -- what comes out ------------------------------------------------------------------------------


async def test_a_loaded_model_answers(house: House) -> None:
    model = await house.load()
    assert await marks(model.infer(make_request("a"))) == ["a"]
    await model.stop()
    assert house.script.finalized == 1


async def test_an_instance_is_told_about_itself(house: House) -> None:
    model = await house.load(settings_of=lambda backend: {"of": backend})
    (context,) = house.script.contexts
    assert (context.name, context.version, context.kind) == ("m_0", 1, "KIND_CPU")
    assert context.version_path == house.path / "m" / "1"
    assert context.settings == {"of": "fake"}
    assert context.config is model.config
    await model.stop()


@pytest.mark.contract("C-29")
@pytest.mark.parametrize(
    ("groups", "names"),
    [
        ("count: 3", ["m_0_0", "m_0_1", "m_0_2"]),
        ('name: "g" count: 2', ["g_0", "g_1"]),
        ("} instance_group { count: 2", ["m_0_0", "m_1_0", "m_1_1"]),
    ],
)
@pytest.mark.contract("I-01", "I-04", "I-05")
async def test_every_group_has_as_many_instances_as_it_says(
    house: House, groups: str, names: list[str]
) -> None:
    model = await house.load(f"{TENSORS} instance_group {{ {groups} }}")
    assert house.names == names
    await model.stop()


@pytest.mark.contract("I-03")
async def test_a_group_has_its_instances_on_each_of_its_gpus() -> None:
    group = InstanceGroup(name="g", kind=InstanceKind.KIND_GPU, count=2, gpus=(0, 3))
    contexts = [
        context
        for _, context in instance_contexts(
            ModelConfig(instance_group=(group,)), 1, Path("/m/1"), {}, {}
        )
    ]
    assert [(context.name, context.device_id) for context in contexts] == [
        ("g_0_gpu0", 0),
        ("g_1_gpu0", 0),
        ("g_0_gpu3", 3),
        ("g_1_gpu3", 3),
    ]


@pytest.mark.parametrize(
    ("batching", "batches"),
    [
        ("", [["a"], ["b"], ["c"]]),
        ("dynamic_batching { }", [["a", "b", "c"]]),
        ("dynamic_batching { preferred_batch_size: [ 2 ] }", [["a", "b"], ["c"]]),
        (
            "dynamic_batching { preferred_batch_size: [ 3 ]"
            " max_queue_delay_microseconds: 60000000 }",
            [["a", "b", "c"]],
        ),
    ],
)
async def test_requests_are_batched_as_the_configuration_says(
    house: House, batching: str, batches: list[list[str]]
) -> None:
    model = await house.load(TENSORS + batching)
    for stream in [model.infer(make_request(id)) for id in "abc"]:
        await marks(stream)
    assert house.script.batches == batches
    await model.stop()


@pytest.mark.contract("ST-09", "ME-34")
async def test_a_model_counts_from_zero_each_time_it_is_loaded(house: House) -> None:
    first = await house.load()
    await marks(first.infer(make_request("a")))
    loader = ModelLoader(lambda _: {}, Reaper())
    second = await loader.load(ModelRepository([house.path]).read("m"), 1)
    assert (first.statistics.success.count, second.statistics.success.count) == (1, 0)
    await first.stop()
    await second.stop()


# -- the configuration ---------------------------------------------------------------------------


class Completing(FakeBackend):
    """Knows its own batch size."""

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        return replace(config, max_batch_size=int(settings["size"]))


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


async def test_what_is_wrong_in_a_configuration_is_refused_before_anything_runs(
    house: House,
) -> None:
    with pytest.raises(ModelLoadError, match="must specify 'dims'"):
        await house.load('input { name: "IN" data_type: TYPE_INT32 }')
    assert house.script.contexts == []


async def test_what_is_not_supported_is_refused_before_anything_runs(house: House) -> None:
    with pytest.raises(UnsupportedError, match="runtime"):
        await house.load(f'{TENSORS} runtime: "mine"')
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
    loader = ModelLoader(lambda _: {}, Reaper())
    with pytest.raises(ModelLoadError, match="unable to find backend 'nope'"):
        await loader.load(ModelRepository([house.path]).read("m"), 1)


@pytest.mark.parametrize("host", ["moon", "Thread"])
async def test_a_place_that_no_instance_can_live_in_is_refused(house: House, host: str) -> None:
    parameter = f'key: "penstock.host" value {{ string_value: "{host}" }}'
    with pytest.raises(ConfigError, match=f"'penstock.host' must be .*, got '{host}'"):
        await house.load(f"{TENSORS} parameters {{ {parameter} }}")


async def test_a_configuration_may_send_an_instance_to_a_process(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "m" / "config.pbtxt").write_text(
        f'backend: "identity" {TENSORS} parameters {{ key: "penstock.host"'
        ' value { string_value: "process" } }'
    )
    reaper = Reaper()
    model = await ModelLoader(lambda _: {}, reaper).load(ModelRepository([tmp_path]).read("m"), 1)
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


# -- starting ------------------------------------------------------------------------------------

THREE = f"{TENSORS} instance_group {{ count: 3 }}"


class Refusing(FakeBackend):
    """The instance m_0_1 cannot be loaded."""

    error: ClassVar[BaseException] = RuntimeError("out of memory")

    async def initialize(self, context: InstanceContext) -> None:
        if context.name == "m_0_1":
            await turns()
            raise self.error
        await super().initialize(context)


async def test_when_one_instance_fails_the_others_are_ended(house: House) -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        await house.load(THREE, Refusing)
    assert (house.names, house.script.finalized) == (["m_0_0", "m_0_2"], 2)


async def test_an_instance_that_fails_to_end_does_not_hide_why(house: House) -> None:
    class Worse(Refusing):
        async def finalize(self) -> None:
            await super().finalize()
            raise OSError("device lost")

    with pytest.raises(RuntimeError, match="out of memory"):
        await house.load(THREE, Worse)
    assert house.script.finalized == 2


async def test_a_load_that_is_given_up_ends_the_instances_that_have_started(
    house: House,
) -> None:
    class Slow(FakeBackend):
        async def initialize(self, context: InstanceContext) -> None:
            await super().initialize(context)
            if context.name == "m_0_1":
                await asyncio.sleep(60)

    loading = asyncio.ensure_future(house.load(THREE, Slow))
    await until(lambda: len(house.script.contexts) == 3)
    loading.cancel()
    await asyncio.wait([loading])
    assert (loading.cancelled(), house.script.finalized) == (True, 2)


@pytest.mark.contract("I-12")
async def test_instances_start_side_by_side(house: House) -> None:
    class Patient(FakeBackend):
        async def initialize(self, context: InstanceContext) -> None:
            await super().initialize(context)
            await until(lambda: len(self.script.contexts) == 3)

    model = await asyncio.wait_for(house.load(THREE, Patient), 5)
    await model.stop()


@pytest.mark.contract("I-12")
async def test_instances_start_one_after_the_other_where_the_environment_says_so(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting: list[int] = []

    class Alone(FakeBackend):
        async def initialize(self, context: InstanceContext) -> None:
            await super().initialize(context)
            starting.append(len(starting))
            count = len(starting)
            await turns()
            assert len(starting) == count
            if count == 3:
                raise ValueError("no third one")

    monkeypatch.setenv("TRITON_PARALLEL_INSTANCE_LOADING", "0")
    with pytest.raises(ValueError, match="no third one"):
        await house.load(THREE, Alone)
    assert (starting, house.script.finalized) == ([0, 1, 2], 2)


# -- instances -----------------------------------------------------------------------------------


@pytest.mark.contract("I-07")
async def test_a_passive_instance_is_loaded_and_gets_no_requests(house: House) -> None:
    groups = "instance_group { name: 'a' } instance_group { name: 'p' count: 2 passive: true }"
    model = await house.load(f"{TENSORS} {groups}")
    assert house.names == ["a_0", "p_0", "p_1"]
    assert [context.passive for context in house.script.contexts] == [False, True, True]
    for _ in range(3):
        await marks(model.infer(make_request("a")))
    assert house.script.executed == ["a_0"] * 3
    await model.stop()
    assert house.script.finalized == 3


@pytest.mark.contract("I-07")
async def test_a_model_of_passive_instances_refuses_requests(house: House) -> None:
    model = await house.load(f"{TENSORS} instance_group {{ passive: true }}")
    with pytest.raises(UnavailableError, match="all instances of model 'm' are passive"):
        model.infer(make_request())
    assert await model.ready()
    await model.stop()


@pytest.mark.contract("I-08")
@pytest.mark.parametrize(
    ("group", "policy"),
    [("", "cpu"), ("kind: KIND_MODEL", "model"), ("host_policy: 'mine'", "mine")],
)
async def test_an_instance_is_placed_by_its_host_policy(
    house: House, group: str, policy: str
) -> None:
    core = max(os.sched_getaffinity(0))

    class Where(FakeBackend):
        async def initialize(self, context: InstanceContext) -> None:
            await super().initialize(context)
            seen.append(await context.run(os.sched_getaffinity, 0))

    seen: list[set[int]] = []
    placements = {policy: Placement((core, core))}
    config = f"{TENSORS} instance_group {{ {group} }}"
    model = await house.load(config, Where, placements=placements)
    assert seen == [{core}]
    await model.stop()


async def test_a_policy_that_nobody_defined_places_nothing(house: House) -> None:
    model = await house.load(f"{TENSORS} instance_group {{ host_policy: 'nope' }}")
    assert house.script.contexts[0].placement == Placement()
    await model.stop()


@pytest.mark.contract("I-06", "I-09")
async def test_a_backend_is_told_of_secondary_devices(house: House) -> None:
    group = "secondary_devices { kind: KIND_NVDLA device_id: 1 }"
    model = await house.load(f"{TENSORS} instance_group {{ {group} }}")
    assert house.script.contexts[0].secondary_devices == (("KIND_NVDLA", 1),)
    await model.stop()


LIMITED = "instance_group { rate_limiter { resources { name: 'R' count: 3 } } }"


@pytest.mark.contract("I-15", "I-16")
async def test_resources_are_held_only_where_the_limiter_is_on(house: House) -> None:
    model = await house.load(f"{TENSORS} {LIMITED}")
    assert await marks(model.infer(make_request("a"))) == ["a"]
    await model.stop()
    with pytest.raises(ModelLoadError, match='Resource count for "R" is limited to 2'):
        await house.load(f"{TENSORS} {LIMITED}", limiter=RateLimiter([Limit("R", 2)]))


async def test_a_limited_model_answers_and_leaves_the_limits_when_it_stops(house: House) -> None:
    limiter = RateLimiter([Limit("R", 3)])
    for _ in range(2):
        model = await house.load(f"{TENSORS} {LIMITED}", limiter=limiter)
        assert await marks(model.infer(make_request("a"))) == ["a"]
        await model.stop()


# -- warm-up and cache ---------------------------------------------------------------------------

WARM = (
    'model_warmup { name: "w" batch_size: 2 inputs { key: "IN"'
    " value { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } }"
)


@pytest.mark.contract("C-33")
@pytest.mark.contract("I-19")
@pytest.mark.parametrize("limiter", [None, RateLimiter()])
async def test_every_instance_is_warmed_up_before_the_model_is_ready(
    house: House, limiter: RateLimiter | None
) -> None:
    group = "rate_limiter { resources { name: 'R' count: 1 } }"
    config = f"{TENSORS} {WARM} instance_group {{ count: 2 {group} }}"
    model = await house.load(config, limiter=limiter)
    assert house.script.batches == [["", ""], ["", ""]]
    assert sorted(house.script.executed) == ["m_0_0", "m_0_1"]
    await model.stop()


@pytest.mark.contract("I-20")
async def test_a_failed_warm_up_fails_the_load(house: House) -> None:
    house.script.answer = lambda _: UnavailableError("cold")
    with pytest.raises(ModelLoadError, match="failed to run warmup sample 'w': cold; cold; "):
        await house.load(f"{TENSORS} {WARM}")
    assert house.script.finalized == 1


@pytest.mark.contract("RC-01", "C-37")
@pytest.mark.parametrize(
    ("cache", "wanted", "executions"),
    [
        (LocalCache(10_000), "response_cache { enable: true }", 1),
        (LocalCache(10_000), "", 2),
        (None, "response_cache { enable: true }", 2),
    ],
)
async def test_responses_are_kept_where_model_and_server_want_it(
    house: House, cache: LocalCache | None, wanted: str, executions: int
) -> None:
    model = await house.load(f"{TENSORS} {wanted}", cache=cache)
    for _ in range(2):
        assert await marks(model.infer(make_request("a"))) == ["a"]
    assert len(house.script.batches) == executions
    assert model.statistics.cached == (executions == 1)
    await model.stop()


async def test_a_model_that_is_loaded_anew_does_not_answer_what_the_old_one_would(
    house: House,
) -> None:
    cache = LocalCache(10_000)
    for _ in range(2):
        model = await house.load(f"{TENSORS} response_cache {{ enable: true }}", cache=cache)
        await marks(model.infer(make_request("a")))
        await model.stop()
    assert len(house.script.batches) == 2
