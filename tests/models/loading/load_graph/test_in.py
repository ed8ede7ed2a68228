"""Ensembles and the models that they are made of, on their way in."""

from __future__ import annotations

import asyncio

import pytest

from fakes import until
from models.loading.load_graph.house import House
from penstock.core.errors import InternalError


@pytest.mark.contract("M-08")
async def test_an_ensemble_brings_what_it_needs(house: House) -> None:
    await house.load("more")
    assert house.serving == "a b more pair"


async def test_a_model_that_serves_is_not_loaded_again_for_an_ensemble(house: House) -> None:
    house.builder.remembers = True
    await house.load("a")
    served = house.lifecycle.catalog.find("a", 1)
    await house.load("pair")
    assert house.lifecycle.catalog.find("a", 1) is served


async def test_models_are_loaded_once_when_all_are_wanted(house: House) -> None:
    failures = await house.lifecycle.load_all(["more", "pair", "b", "a"])
    assert failures == {}
    assert sorted(instance.name for instance in house.builder.instances) == ["a_1", "b_1"]


async def test_an_ensemble_waits_for_its_own_parts_only(house: House) -> None:
    house.write(slow="", lone="a")
    gate = asyncio.Event()

    async def wait_for_gate() -> None:
        await gate.wait()

    house.builder.before["slow"] = wait_for_gate
    loading = asyncio.ensure_future(house.lifecycle.load_all(["slow", "lone", "a"]))
    await until(lambda: house.serving == "a lone")
    gate.set()
    assert await loading == {}


async def test_a_part_that_cannot_be_read_is_missed(house: House) -> None:
    (house.path / "b" / "config.pbtxt").write_text("no such field")
    text = "ensemble pair contains models that are not available or ambiguous: b"
    assert await house.failure("pair") == text
    assert house.serving == "a"
    assert "pair" not in house.lifecycle.catalog.names()


@pytest.mark.contract("M-08")
async def test_a_part_that_fails_to_load_is_reported(house: House) -> None:
    house.builder.broken["b"] = RuntimeError("no memory")
    assert await house.failure("pair") == (
        "ensemble 'pair' depends on 'b' which has no loaded version. Model 'b' loading failed with"
        " error: version 1 is at UNAVAILABLE state: Internal: RuntimeError: no memory;"
    )


async def test_a_nested_ensemble_that_is_not_valid_is_reported(house: House) -> None:
    house.write(pair="a nope")
    assert await house.failure("more") == (
        "ensemble 'more' depends on 'pair' which is not valid. Model 'pair' failed with error:"
        " ensemble pair contains models that are not available or ambiguous: nope"
    )


async def test_a_missing_version_is_reported(house: House) -> None:
    house.write(pair="a:7")
    assert await house.failure("pair") == (
        "ensemble 'pair' depends on 'a' whose required version 7 is not loaded."
    )


@pytest.mark.contract("M-09")
async def test_ensembles_of_each_other_are_refused(house: House) -> None:
    house.write(one="two", two="one")
    assert await house.failure("one") == (
        "circular dependency between ensembles: one -> ... -> two -> one"
    )


@pytest.mark.contract("E-04")
async def test_parts_that_do_not_fit_are_refused(house: House) -> None:
    config = house.path / "pair" / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 9"))
    assert await house.failure("pair") == (
        "ensemble pair allows maximum batch size 9, but it contains model a which only allows"
        " maximum batch size to be 8"
    )


@pytest.mark.contract("E-04", "AC-04")
async def test_a_batch_size_that_auto_completion_chose_is_told_apart(house: House) -> None:
    house.builder.remembers = True
    config = house.path / "pair" / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 9"))
    part = house.path / "a" / "config.pbtxt"
    part.write_text(part.read_text().replace("max_batch_size: 8", ""))
    told = await house.failure("pair")
    assert (
        "model a which only allows maximum batch size to be 8; its configuration gives no" in told
    )
    assert "--backend-config=default-max-batch-size=N" in told


async def test_a_requested_model_that_cannot_be_read_is_reported(house: House) -> None:
    with pytest.raises(InternalError, match="failed to load 'nope', failed to poll"):
        await house.lifecycle.load("nope")


async def test_an_ensemble_comes_when_what_it_missed_does(house: House) -> None:
    house.write(pair="a late")
    await house.failure("pair")
    house.write(late="")
    await house.load("late")
    assert house.serving == "a late pair"


async def test_answers_go_through_all_steps(house: House) -> None:
    await house.load("more")
    response = await house.ask("more")
    assert list(response.outputs) == ["OUT"]
    batches = {instance.name: instance.batches for instance in house.builder.instances}
    assert batches == {"a_1": [["a"], ["a"]], "b_1": [["a"]]}
