"""Whether all that was asked for serves."""

from __future__ import annotations

import asyncio

import pytest

from fakes import until, write_model
from models.loading.lifecycle.house import ALL, House
from penstock.core.errors import InvalidRequestError


async def test_nothing_asked_for_is_nothing_missing(house: House) -> None:
    assert house.lifecycle.catalog.complete()


@pytest.mark.parametrize("policy", ["", ALL])
async def test_all_is_well_when_every_version_serves(house: House, policy: str) -> None:
    write_model(house.path, versions=(1, 2), config=policy)
    await house.lifecycle.load("m")
    assert house.lifecycle.catalog.complete()


async def test_a_version_that_was_unloaded_is_not_missed(house: House) -> None:
    await house.lifecycle.load("m")
    await house.unload()
    assert house.lifecycle.catalog.complete()


async def test_a_version_that_failed_is_missed(house: House) -> None:
    house.builder.failures[1] = RuntimeError("broken")
    with pytest.raises(InvalidRequestError):
        await house.lifecycle.load("m")
    assert not house.lifecycle.catalog.complete()


async def test_a_model_without_any_version_is_missed(house: House) -> None:
    write_model(house.path, config="version_policy { specific { versions: [7] } }")
    with pytest.raises(InvalidRequestError):
        await house.lifecycle.load("m")
    assert not house.lifecycle.catalog.complete()


async def test_a_model_that_loads_is_missed_and_one_that_is_loaded_anew_is_not(
    house: House,
) -> None:
    complete = []
    for _ in range(2):
        house.builder.gate.clear()
        load = asyncio.ensure_future(house.lifecycle.load("m"))
        await until(lambda: house.builder.loading)
        complete.append(house.lifecycle.catalog.complete())
        house.builder.gate.set()
        await load
    assert complete == [False, True]
