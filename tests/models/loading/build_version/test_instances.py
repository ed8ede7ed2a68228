"""What instances a loaded model has, and where they are."""

from __future__ import annotations

import os

import pytest

from fakes import FakeBackend, make_request, marks
from models.loading.build_version.house import TENSORS, House
from penstock.core.backend import InstanceContext
from penstock.core.errors import ModelLoadError, UnavailableError
from penstock.core.placement import Placement
from penstock.scheduling.rate_limiter import Limit, RateLimiter


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


async def test_an_undefined_host_policy_places_nothing(house: House) -> None:
    model = await house.load(f"{TENSORS} instance_group {{ host_policy: 'nope' }}")
    assert house.script.contexts[0].placement == Placement()
    await model.stop()


@pytest.mark.contract("I-06", "I-09")
async def test_a_context_has_the_secondary_devices(house: House) -> None:
    group = "secondary_devices { kind: KIND_NVDLA device_id: 1 }"
    model = await house.load(f"{TENSORS} instance_group {{ {group} }}")
    assert house.script.contexts[0].secondary_devices == (("KIND_NVDLA", 1),)
    await model.stop()


async def test_on_the_cpu_only_groups_for_gpus_are_served_on_it_with_a_warning(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    group = "instance_group { kind: KIND_GPU gpus: [ 0, 1 ] count: 2 }"
    with pytest.raises(ModelLoadError, match="or start the server with --cpu-only"):
        await house.load(f"{TENSORS} {group}")
    model = await house.load(f"{TENSORS} {group}", cpu_only=True)
    assert [context.kind for context in house.script.contexts] == ["KIND_CPU"] * 2
    assert "instance groups of 'm' for GPUs are served on the CPU" in caplog.text
    await model.stop()


@pytest.mark.parametrize("group", ["", "instance_group { kind: KIND_CPU }"])
async def test_on_the_cpu_only_other_groups_are_served_without_a_warning(
    house: House, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = await house.load(f"{TENSORS} {group}", cpu_only=True)
    assert caplog.text == ""
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
