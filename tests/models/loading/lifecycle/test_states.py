"""States of model versions: which follow each other, and which serve."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from fakes import write_model
from models.loading.lifecycle.house import ALL, House
from penstock.core.errors import InferenceError, NotFoundError, UnavailableError
from penstock.core.request import ANY_VERSION
from penstock.models.serving.catalog import VersionState, VersionStatus

MOVES = {
    ("UNKNOWN", "LOADING"),
    ("LOADING", "READY"),
    ("LOADING", "UNAVAILABLE"),
    ("READY", "READY"),
    ("READY", "UNLOADING"),
    ("UNLOADING", "UNAVAILABLE"),
    ("UNAVAILABLE", "LOADING"),
}


# -- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "end"), list(product(VersionState, VersionState)))
def test_a_version_moves_only_as_the_table_says(start: VersionState, end: VersionState) -> None:
    status = VersionStatus(start)
    if (start.value, end.value) in MOVES:
        status.move(end, "why")
        assert (status.state, status.reason) == (end, "why")
    else:
        with pytest.raises(AssertionError, match=f"cannot go from {start} to {end}"):
            status.move(end)


async def test_a_move_leaves_reason_and_model_of_the_former_state_behind(house: House) -> None:
    await house.lifecycle.load("m")
    status = VersionStatus(VersionState.READY, "odd", house.lifecycle.catalog.find("m", 1))
    status.move(VersionState.UNLOADING)
    assert (status.reason, status.model) == ("", None)


# -- finding --------------------------------------------------------------------------------------


async def test_a_loaded_model_serves(house: House) -> None:
    await house.lifecycle.load("m")
    assert await house.ask() == ("1", ["a"])
    assert house.states == {1: "READY"}


@pytest.mark.contract("R-06", "R-07")
async def test_the_highest_ready_version_answers_unless_one_is_named(house: House) -> None:
    write_model(house.path, versions=(2, 10), config=ALL)
    await house.lifecycle.load("m")
    assert (await house.ask())[0] == "10"
    assert (await house.ask(version=2))[0] == "2"


@pytest.mark.parametrize(
    ("name", "version", "error", "text"),
    [
        ("nope", ANY_VERSION, NotFoundError, "'nope' is not found"),
        ("nope", 1, NotFoundError, "'nope' is not found"),
        ("", ANY_VERSION, NotFoundError, "'' is not found"),
        ("m", 7, NotFoundError, "'m' version 7 is not found"),
        ("m", 1, UnavailableError, "'m' version 1 is not at ready state"),
        ("m", ANY_VERSION, NotFoundError, "'m' has no available versions"),
    ],
)
async def test_what_does_not_serve_is_refused_in_the_words_of_the_real_server(
    house: House, name: str, version: int, error: type[InferenceError], text: str
) -> None:
    await house.lifecycle.load("m")
    await house.lifecycle.unload("m")
    refused = house.refusal(name, version)
    assert (type(refused), refused.message) == (error, f"Request for unknown model: {text}")


async def test_served_versions_are_listed_by_number_and_models_by_name(house: House) -> None:
    write_model(house.path, "m", (10, 2), ALL)
    write_model(house.path, "a")
    await asyncio.gather(*(house.lifecycle.load(name) for name in ("m", "a")))
    assert list(house.lifecycle.catalog.served("m")) == [1, 2, 10]
    models = [(model.config.name, model.version) for model in house.lifecycle.catalog.models()]
    assert models == [("a", 1), ("m", 1), ("m", 2), ("m", 10)]
    assert house.lifecycle.catalog.served("nope") == {}
