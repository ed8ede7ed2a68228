"""Unloading, which waits only for requests in flight."""

from __future__ import annotations

import asyncio

import pytest

from fakes import until, write_model
from models.loading.lifecycle.house import House


@pytest.mark.contract("G-13", "M-07")
async def test_unloading_refuses_at_once_and_returns_before_what_is_in_flight_is_done(
    house: House,
) -> None:
    house.builder.held = True
    await house.lifecycle.load("m")
    held = await house.hold_a_request()
    await asyncio.wait_for(house.lifecycle.unload("m"), 20)
    assert house.states == {1: "UNLOADING"}
    assert not house.lifecycle.catalog.complete()  # until it is gone (W-03)
    assert house.refusal().message.endswith("'m' has no available versions")
    house.builder.instances[0].release()
    assert await held == ["held"]
    await asyncio.wait_for(house.lifecycle.wait_unloaded(), 20)
    assert house.states == {1: "UNAVAILABLE: unloaded"}
    assert house.builder.instances[0].stopped == 1


async def test_unloading_what_has_no_requests_returns_once_it_is_finalized(house: House) -> None:
    await house.lifecycle.load("m")
    await house.lifecycle.unload("m")
    assert house.builder.instances[0].stopped == 1
    assert house.states == {1: "UNAVAILABLE: unloaded"}


@pytest.mark.parametrize("name", ["nope", "m"])
async def test_unloading_what_does_not_serve_does_nothing(house: House, name: str) -> None:
    await house.lifecycle.load("m")
    await house.unload()
    await asyncio.wait_for(house.unload(name), 20)
    assert house.states == {1: "UNAVAILABLE: unloaded"}


async def test_unloading_a_second_time_does_nothing_more(house: House) -> None:
    house.builder.held = True
    await house.lifecycle.load("m")
    await house.hold_a_request()
    for _ in range(2):
        await asyncio.wait_for(house.lifecycle.unload("m"), 20)
    house.builder.instances[0].release()
    await asyncio.wait_for(house.lifecycle.wait_unloaded(), 20)
    assert house.builder.instances[0].stopped == 1


async def test_unloading_does_not_wait_for_other_models(house: House) -> None:
    write_model(house.path, "slow")
    house.builder.held = True
    await asyncio.gather(house.lifecycle.load("m"), house.lifecycle.load("slow"))
    await house.hold_a_request("slow")
    await house.lifecycle.unload("slow")
    await house.lifecycle.unload("m")
    await until(lambda: _stopped(house) == ["m_1"])
    for instance in house.builder.instances:
        instance.release()
    await house.lifecycle.wait_unloaded()
    assert _stopped(house) == ["m_1", "slow_1"]


def _stopped(house: House) -> list[str]:
    return sorted(instance.name for instance in house.builder.instances if instance.stopped)
