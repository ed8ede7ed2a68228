"""Alive, ready, and each model's readiness."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import write_model
from penstock.core.errors import InvalidRequestError
from server.house import House


@pytest.mark.contract("W-02")
@pytest.mark.contract("G-01", "W-03")
async def test_a_server_is_alive_before_it_is_ready(house: House) -> None:
    assert (await house.server.live(), await house.server.ready()) == (True, False)
    await house.started()
    assert (await house.server.live(), await house.server.ready()) == (True, True)


@pytest.mark.contract("G-02", "W-03")
async def test_a_server_is_ready_while_all_its_models_are(house: House) -> None:
    server = await house.started("m", "two")
    assert await server.ready()
    house.builder.instances[1].health = False
    assert not await server.ready()


@pytest.mark.contract("W-03")
async def test_a_model_that_failed_keeps_the_server_from_being_ready(house: House) -> None:
    house.builder.failures[3] = RuntimeError("broken")
    assert not await (await house.started("m", "two")).ready()


async def test_a_model_that_was_unloaded_does_not(house: House) -> None:
    server = await house.started("m", "two")
    await house.unload("two")
    assert await server.ready()


@pytest.mark.contract("W-04", "CL-09")
async def test_a_server_that_is_not_strict_is_ready_whatever_its_models_are(
    tmp_path: Path,
) -> None:
    write_model(tmp_path)
    house = House(tmp_path, strict_readiness=False)
    house.builder.failures[1] = RuntimeError("broken")
    assert not await house.server.ready()
    assert await (await house.started("m")).ready()


@pytest.mark.parametrize(
    ("name", "version", "ready"),
    [("m", "", True), ("m", "1", True), ("m", "7", False), ("nope", "", False)],
)
async def test_a_model_is_ready_when_the_version_serves(
    house: House, name: str, version: str, ready: bool
) -> None:
    server = await house.started("m")
    assert await server.model_ready(name, version) is ready


async def test_a_model_whose_instance_is_not_healthy_is_not_ready(house: House) -> None:
    server = await house.started("m")
    house.builder.instances[0].health = False
    assert not await server.model_ready("m", "")


async def test_a_version_that_is_no_number_is_refused_even_where_false_would_do(
    house: House,
) -> None:
    server = await house.started("m")
    with pytest.raises(InvalidRequestError, match="version string 'abc'"):
        await server.model_ready("m", "abc")
