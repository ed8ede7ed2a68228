"""From the files of a model to a model that serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import make_request, marks, until
from models.loading.build_version.house import TENSORS, House
from penstock.caching.local import LocalCache
from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
from penstock.core.errors import ModelLoadError, UnavailableError
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.instance_factory import instance_contexts
from penstock.models.repository.repository import ModelRepository
from penstock.scheduling.rate_limiter import RateLimiter
from penstock.system.reaper import Reaper

# -- what comes out --------------------------------------------------------------------------------


async def test_a_loaded_model_answers(house: House) -> None:
    model = await house.load()
    assert await marks(model.infer(make_request("a"))) == ["a"]
    await model.stop()
    assert house.script.finalized == 1


async def test_an_instance_has_its_context(house: House) -> None:
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
    builder = VersionBuilder(lambda _: {}, Reaper())
    second = await builder.build(ModelRepository([house.path]).read("m"), 1)
    assert (first.statistics.success.count, second.statistics.success.count) == (1, 0)
    await first.stop()
    await second.stop()


# -- warm-up and cache -----------------------------------------------------------------------------


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


@pytest.mark.contract("N-04", "D-08")
async def test_answer_from_the_cache_waits_for_its_turn(house: House) -> None:
    ordered = "dynamic_batching { preserve_ordering: true } response_cache { enable: true }"
    model = await house.load(f"{TENSORS} {ordered}", cache=LocalCache(10_000))
    await marks(model.infer(make_request("a")))
    house.script.gate.clear()
    slow, hit = (model.infer(make_request("b", width=width)) for width in (2, 1))
    await until(lambda: len(house.script.batches) == 2)
    assert (hit.ended, hit.backlog) == (True, 0)
    house.script.gate.set()
    assert [await marks(stream) for stream in (hit, slow)] == [["a"], ["b"]]
    await model.stop()
