"""Instances that share resources, under their schedulers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fakes import FakeInstance, execute, in_virtual_time, make_inference, marks, turns
from penstock.core.config import ModelRateLimiter, RateLimiterResource
from penstock.core.errors import ModelLoadError
from penstock.models.serving.limited_instance import LimitedInstance, resource_claim
from penstock.scheduling.direct import DirectScheduler
from penstock.scheduling.rate_limiter import Limit, RateLimiter, ResourceClaim

ONE = ModelRateLimiter(resources=(RateLimiterResource("R", count=1),))


def _limited(
    instance: FakeInstance, limiter: RateLimiter, config: ModelRateLimiter = ONE
) -> LimitedInstance:
    return LimitedInstance(instance, limiter, resource_claim(config, 0))


async def _started(instance: FakeInstance, limiter: RateLimiter) -> LimitedInstance:
    limited = _limited(instance, limiter)
    await limited.start()
    return limited


@pytest.mark.contract("I-13", "I-17")
@in_virtual_time
async def test_models_that_share_a_resource_take_turns() -> None:
    limiter = RateLimiter()
    fakes = FakeInstance("a", seconds=1.0), FakeInstance("b", seconds=1.0)
    schedulers = [DirectScheduler([await _started(fake, limiter)]) for fake in fakes]
    asked = [make_inference(id) for id in "abcdef"]
    for at, inference in enumerate(asked):
        schedulers[at % 2].schedule(inference)
    for inference in asked:
        await marks(inference.stream)
    assert sorted(fakes[0].began + fakes[1].began) == [0, 1, 2, 3, 4, 5]
    assert len(fakes[0].began) == len(fakes[1].began) == 3


@pytest.mark.contract("I-14")
@in_virtual_time
async def test_models_of_different_priorities_take_turns_by_weight() -> None:
    """An instance's own queue is in line again before others are offered its resources."""
    limiter = RateLimiter()
    light, heavy = FakeInstance("a", seconds=1.0), FakeInstance("b", seconds=1.0)
    for fake, priority in ((heavy, 2), (light, 1)):
        limited = _limited(fake, limiter, replace(ONE, priority=priority))
        await limited.start()
        scheduler = DirectScheduler([limited])
        for number in range(6):
            scheduler.schedule(make_inference(f"{fake.name}{number}"))
    await asyncio.sleep(20)
    assert heavy.began[:3] == [0, 5, 8]
    assert light.began == [1, 2, 3, 4, 6, 7]


@in_virtual_time
async def test_models_with_resources_of_their_own_run_together() -> None:
    limiter = RateLimiter()
    fakes = FakeInstance("a", seconds=1.0), FakeInstance("b", seconds=1.0)
    for fake, name in zip(fakes, "RS", strict=True):
        config = ModelRateLimiter(resources=(RateLimiterResource(name, count=1),))
        limited = _limited(fake, limiter, config)
        await limited.start()
        DirectScheduler([limited]).schedule(make_inference(name))
    await asyncio.sleep(2)
    assert [fake.began for fake in fakes] == [[0], [0]]


async def test_a_request_that_left_while_it_waited_for_resources_passes_the_turn_on() -> None:
    limiter = RateLimiter()
    fakes = [FakeInstance(name, held=name == "a") for name in "abc"]
    schedulers = [DirectScheduler([await _started(fake, limiter)]) for fake in fakes]
    busy, leaving, staying = (make_inference(id) for id in "abc")
    for scheduler, inference in zip(schedulers, (busy, leaving, staying), strict=True):
        scheduler.schedule(inference)
    leaving.stream.close()
    fakes[0].release()
    assert await marks(staying.stream) == ["c"]
    assert fakes[1].batches == []


async def test_an_instance_that_cannot_work_is_not_available_and_holds_nothing() -> None:
    limiter = RateLimiter()
    dead, other = FakeInstance("a"), FakeInstance("b")
    dead.go_away()
    limited = await _started(dead, limiter)
    assert not limited.available
    assert not limited.alive
    assert (await _started(other, limiter)).available


async def test_an_instance_that_hangs_is_offered_nothing() -> None:
    """It is alive, since it may go on, and has no use for resources until then."""
    hung = FakeInstance("a")
    limited = await _started(hung, RateLimiter())
    hung.hung = True
    assert limited.alive
    assert not limited.available


@pytest.mark.contract("I-16")
async def test_what_could_never_run_fails_before_it_is_loaded() -> None:
    limiter = RateLimiter([Limit("other", 1)])
    with pytest.raises(ModelLoadError, match='Resource count for "R" is limited to 0'):
        await _started(FakeInstance(), limiter)


async def test_a_model_that_fails_to_load_leaves_the_limits() -> None:
    class Broken(FakeInstance):
        async def start(self) -> None:
            raise ValueError("broken")

    limiter = RateLimiter()
    both = ModelRateLimiter(resources=(RateLimiterResource("R", global_=True, count=1),))
    with pytest.raises(ValueError, match="broken"):
        await _limited(Broken(), limiter, both).start()
    await _started(FakeInstance(), limiter)  # of its device only, which would be a contradiction


async def test_a_model_that_is_unloaded_gives_its_place_to_others() -> None:
    limiter = RateLimiter()
    first, second = FakeInstance("a", held=True), FakeInstance("b")
    limited = await _started(first, limiter)
    other = await _started(second, limiter)
    running = asyncio.ensure_future(execute(limited, [make_inference()]))
    await turns()
    waiting = make_inference("w")
    DirectScheduler([other]).schedule(waiting)
    assert second.batches == []
    first.release()
    await running
    await limited.stop()
    assert await marks(waiting.stream) == ["w"]
    assert first.stopped == 1


def test_of_a_resource_named_twice_the_larger_count_is_needed() -> None:
    resources = tuple(RateLimiterResource("R", count=count) for count in (2, 3, 1))
    assert resource_claim(ModelRateLimiter(resources), 4).needs == {("R", 4): 3}


@pytest.mark.contract("I-14")
def test_no_priority_is_priority_one() -> None:
    assert resource_claim(ONE, 0).priority == 1


async def test_the_rest_is_the_instance_itself() -> None:
    fake = FakeInstance()
    fake.numbers = {"x": 1.0}
    limited = await _started(fake, RateLimiter())
    assert await limited.healthy()
    assert limited.metrics() == {"x": 1.0}
    assert limited.why_unavailable == "it is away"
    lost: list[bool] = []
    limited.on_lost = lambda: lost.append(True)
    fake.give_up()
    assert (lost, limited.lost) == ([True], True)


async def test_all_but_availability_is_the_instance_s_own() -> None:
    calls: list[Any] = []

    class Whole(FakeInstance):
        async def healthy(self) -> bool:
            return False

        async def control(self, action: str, arguments: Mapping[str, Any]) -> Any:
            return action, dict(arguments)

        def metrics(self) -> Mapping[str, float]:
            return {"a": 1.0}

        def histograms(self) -> Mapping[str, Any]:
            return {"b": ()}

        async def answered(self) -> None:
            calls.append("answered")

    instance: Any = Whole("a")
    limited = _limited(instance, RateLimiter())
    assert limited.memory is instance.memory
    assert limited.caller is instance.caller
    assert limited.process is instance.process
    assert limited.why_unavailable == instance.why_unavailable
    assert (limited.lost, limited.alive) == (False, True)
    assert await limited.healthy() is False
    assert await limited.control("sleep", {"level": 1}) == ("sleep", {"level": 1})
    assert (limited.metrics(), limited.histograms()) == ({"a": 1.0}, {"b": ()})
    await limited.answered()
    assert calls == ["answered"]

    def told() -> None:
        calls.append("told")

    limited.on_lost = limited.on_available = told
    assert limited.on_lost is instance.on_lost is told
    assert limited.on_available is instance.on_available is told


@pytest.mark.parametrize(("priority", "kept"), [(0, 1), (1, 1), (5, 5)])
def test_of_a_resource_that_is_named_twice_the_larger_count_is_needed(
    priority: int, kept: int
) -> None:
    resources = (
        *(RateLimiterResource("R", count=n) for n in (2, 3, 1)),
        RateLimiterResource("R", global_=True, count=4),
    )
    claim = resource_claim(ModelRateLimiter(resources=resources, priority=priority), 7)
    assert claim.signature == ResourceClaim({("R", 7): 3, ("R", None): 4}, kept).signature
