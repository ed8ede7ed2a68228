"""Ensembles whose parts are loaded anew."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from fakes import turns
from models.loading.load_graph.house import House


@pytest.mark.contract("E-17")
async def test_an_ensemble_uses_a_part_that_is_loaded_anew(house: House) -> None:
    await house.load("pair")
    old = house.lifecycle.catalog.find("pair", 1)
    await house.load("b")
    await house.lifecycle.wait_unloaded()
    assert house.lifecycle.catalog.find("pair", 1) is not old
    await house.ask("pair")
    stopped = {id(i): i.stopped for i in house.builder.instances if i.name == "b_1"}
    assert sorted(stopped.values()) == [0, 1]


@pytest.mark.contract("E-17")
async def test_an_ensemble_that_does_not_fit_any_more_goes_and_those_above_it(house: House) -> None:
    await house.load("more")
    config = house.path / "pair" / "config.pbtxt"
    config.write_text(config.read_text().replace("TYPE_INT32", "TYPE_FP32"))
    await house.failure("pair")
    await house.lifecycle.wait_unloaded()
    assert house.serving == "a b"
    house.write(pair="a b")
    await house.load("pair")
    assert house.serving == "a b more pair"


async def test_a_part_whose_new_one_fails_goes_on_in_the_ensemble(house: House) -> None:
    await house.load("pair")
    house.builder.broken["b"] = RuntimeError("bad weights")
    await house.failure("b")
    await house.lifecycle.wait_unloaded()
    assert house.serving == "a b pair"
    await house.ask("pair")


async def test_an_ensemble_whose_pinned_file_was_exchanged_goes_and_its_parts_stay(
    house: House,
) -> None:
    await house.load("pair")
    config, notes = (house.path / "pair" / name for name in ("config.pbtxt", "notes"))
    digest = hashlib.sha256(b"right").hexdigest()
    pin = f'key: "penstock.sha256:notes" value {{ string_value: "{digest}" }}'
    config.write_text(f"{config.read_text()}\nparameters {{ {pin} }}\n")
    notes.write_bytes(b"wrong")
    assert "the file 'notes' is not the one" in await house.failure("pair")
    await house.lifecycle.wait_unloaded()
    assert house.serving == "a b"
    notes.write_bytes(b"right")
    await house.load("pair")
    assert house.serving == "a b pair"


async def test_requests_in_an_ensemble_finish_on_the_parts_they_began_with(house: House) -> None:
    house.builder.held = True
    await house.load("pair")
    old = {instance.name: instance for instance in house.builder.instances}
    answer = asyncio.ensure_future(house.ask("pair"))
    await turns()
    house.builder.held = False
    await house.load("b")
    assert old["b_1"].stopped == 0
    for instance in old.values():
        instance.release()
    await asyncio.wait_for(answer, 20)
    await asyncio.wait_for(house.lifecycle.wait_unloaded(), 20)
    assert (len(old["b_1"].batches), old["b_1"].stopped) == (1, 1)


async def test_no_request_is_lost_while_parts_are_loaded_anew(house: House) -> None:
    await house.load("more")
    loads = asyncio.ensure_future(house.load("a", "b", "a", "pair", "b"))
    count = 0
    while not loads.done():
        await house.ask("more")
        count += 1
        await asyncio.sleep(0.001)  # which lets the threads that load have their turns
    await loads
    await house.lifecycle.wait_unloaded()
    assert count
    running = [instance.name for instance in house.builder.instances if not instance.stopped]
    assert sorted(running) == ["a_1", "b_1"]


async def test_any_mixture_of_loads_and_unloads_leaves_no_part_behind(house: House) -> None:
    lifecycle = house.lifecycle
    work = [
        verb(name)
        for name in ("a", "more", "b", "pair", "more", "b")
        for verb in (lifecycle.load, lifecycle.unload, lifecycle.load)
    ]
    await asyncio.wait_for(asyncio.gather(*work, return_exceptions=True), 20)
    await lifecycle.wait_unloaded()
    running = [instance for instance in house.builder.instances if not instance.stopped]
    plain = [name for name in house.serving.split() if name in ("a", "b")]
    assert len(running) == len(plain)
    assert all(instance.stopped <= 1 for instance in house.builder.instances)
