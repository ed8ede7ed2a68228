"""Many callers that load and unload the same model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fakes import turns, until, write_model
from models.loading.lifecycle.house import House
from penstock.core.errors import ConfigError, InferenceError, InternalError, InvalidRequestError


@pytest.mark.contract("M-05")
async def test_loads_of_one_model_are_served_one_after_the_other(house: House) -> None:
    await asyncio.gather(*(house.lifecycle.load("m") for _ in range(4)))
    await house.lifecycle.wait_unloaded()
    assert house.builder.most_loading == 1
    assert [instance.stopped for instance in house.builder.instances] == [1, 1, 1, 0]


async def test_loads_of_different_models_go_side_by_side(house: House) -> None:
    write_model(house.path, "other")
    house.builder.gate.clear()
    loads = [asyncio.ensure_future(house.lifecycle.load(name)) for name in ("m", "other")]
    await until(lambda: house.builder.loading == 2)
    house.builder.gate.set()
    await asyncio.gather(*loads)


@pytest.mark.contract("M-10")
async def test_an_unload_waits_for_the_load_before_it(house: House) -> None:
    house.builder.gate.clear()
    load = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.builder.loading)
    unload = asyncio.ensure_future(house.lifecycle.unload("m"))
    await turns()
    assert not unload.done()
    house.builder.gate.set()
    await asyncio.gather(load, unload)
    await house.lifecycle.wait_unloaded()
    assert house.states == {1: "UNAVAILABLE: unloaded"}


async def test_a_load_waits_for_the_version_that_is_being_unloaded(house: House) -> None:
    house.builder.held = True
    await house.lifecycle.load("m")
    await house.hold_a_request()
    await house.lifecycle.unload("m")
    load = asyncio.ensure_future(house.lifecycle.load("m"))
    write_model(house.path, "other")
    await house.lifecycle.load("other")  # which takes as long as that of `m` would
    assert [instance.name for instance in house.builder.instances] == ["m_1", "other_1"]
    assert not load.done()
    house.builder.instances[0].release()
    await load
    assert house.states == {1: "READY"}


async def test_any_mixture_of_loads_and_unloads_ends_with_one_model_at_most(house: House) -> None:
    load: Callable[[str], Awaitable[None]] = house.lifecycle.load
    unload: Callable[[str], Awaitable[None]] = house.lifecycle.unload
    verbs = [load, unload] * 5 + [load]
    await asyncio.gather(*(verb("m") for verb in verbs))
    await house.lifecycle.wait_unloaded()
    running = [instance for instance in house.builder.instances if not instance.stopped]
    assert len(running) == len(house.lifecycle.catalog.served("m"))
    assert all(instance.stopped <= 1 for instance in house.builder.instances)


@pytest.mark.contract("M-12")
@pytest.mark.parametrize(
    ("failure", "tries"), [(InternalError("no device"), 3), (ConfigError("never"), 1)]
)
async def test_a_load_that_fails_is_tried_again_unless_the_configuration_is_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, failure: InferenceError, tries: int
) -> None:
    write_model(tmp_path)
    house = House(tmp_path, load_retries=2)
    house.builder.failures[1] = failure
    with pytest.raises(InvalidRequestError, match=failure.message):
        await house.lifecycle.load("m")
    assert caplog.text.count("is retried") == tries - 1
    house.builder.failures.clear()
    await house.lifecycle.load("m")
    assert house.states == {1: "READY"}
