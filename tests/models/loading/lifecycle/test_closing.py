"""The end: all is unloaded, or given up."""

from __future__ import annotations

import asyncio

import pytest

from fakes import turns, until, write_model
from models.loading.lifecycle.house import ALL, House


async def test_closing_unloads_everything_after_what_is_in_flight(house: House) -> None:
    house.builder.held = True
    await house.lifecycle.load("m")
    held = await house.hold_a_request()
    closing = asyncio.ensure_future(house.lifecycle.close())
    await turns()
    assert not closing.done()
    house.builder.instances[0].release()
    await asyncio.wait_for(closing, 20)
    assert await held == ["held"]
    assert house.states == {1: "UNAVAILABLE: unloaded"}


async def test_closing_waits_for_what_is_being_unloaded(house: House) -> None:
    house.builder.held = True
    await house.lifecycle.load("m")
    held = await house.hold_a_request()
    await house.lifecycle.unload("m")
    assert house.lifecycle.in_flight() == {("m", 1): 1}
    closing = asyncio.ensure_future(house.lifecycle.close())
    await turns()
    assert not closing.done()
    house.builder.instances[0].release()
    await asyncio.wait_for(closing, 20)
    assert (await held, house.lifecycle.in_flight()) == (["held"], {})


async def test_closing_gives_up_what_is_being_loaded(house: House) -> None:
    house.builder.gate.clear()
    load = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.builder.loading)
    await asyncio.wait_for(house.lifecycle.close(), 20)
    await asyncio.wait([load])
    assert (load.cancelled(), house.builder.given_up) == (True, 1)
    assert house.states == {1: "UNAVAILABLE: Cancelled: request was cancelled"}


async def test_closing_releases_the_versions_of_a_load_that_were_made_already(
    house: House,
) -> None:
    write_model(house.path, versions=(2,), config=ALL)
    house.builder.gates[2] = asyncio.Event()
    load = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.builder.instances)
    await turns()  # what was made is handed on
    await asyncio.wait_for(house.lifecycle.close(), 20)
    await asyncio.wait([load])
    assert house.builder.instances[0].stopped == 1


async def test_closing_while_a_model_is_loaded_anew_unloads_the_old_one(house: House) -> None:
    await house.lifecycle.load("m")
    house.builder.gate.clear()
    reload = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.builder.loading)
    await asyncio.wait_for(house.lifecycle.close(), 20)
    await asyncio.wait([reload])
    assert house.states == {1: "UNAVAILABLE: unloaded"}
    assert house.builder.instances[0].stopped == 1


async def test_aborting_releases_what_serves_and_what_is_being_unloaded(house: House) -> None:
    write_model(house.path, "other")
    house.builder.held = True
    await asyncio.gather(house.lifecycle.load("m"), house.lifecycle.load("other"))
    await house.hold_a_request()
    await house.lifecycle.unload("m")
    await asyncio.wait_for(house.lifecycle.abort(), 20)
    assert [instance.stopped for instance in house.builder.instances] == [1, 1]
    for instance in house.builder.instances:
        instance.release()
    await turns()


async def test_aborting_after_closing_took_too_long_releases_everything(house: House) -> None:
    house.builder.held = True
    await house.lifecycle.load("m")
    await house.hold_a_request()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(house.lifecycle.close(), 0.01)
    await asyncio.wait_for(house.lifecycle.abort(), 20)
    (instance,) = house.builder.instances
    assert instance.stopped == 1
    instance.release()
    await turns()
