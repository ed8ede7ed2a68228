"""Ensembles and the models that they are made of, on their way out."""

from __future__ import annotations

import asyncio
import logging

import pytest

from fakes import turns
from models.loading.load_graph.house import House
from penstock.core.errors import InferenceError


@pytest.mark.contract("M-08")
async def test_ensembles_go_with_what_they_need(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    await house.load("more")
    with caplog.at_level(logging.ERROR):
        await house.unload("b")
    assert house.serving == "a"
    assert set(house.states.values()) == {"READY", "UNAVAILABLE: unloaded"}
    missing = "Invalid argument: ensemble pair contains models that are not available or ambiguous"
    assert caplog.messages[0] == f"{missing}: b"


@pytest.mark.contract("M-08")
async def test_ensembles_come_back_with_what_they_need(house: House) -> None:
    await house.load("more")
    await house.unload("b")
    await house.load("b")
    assert house.serving == "a b more pair"


async def test_an_ensemble_that_was_unloaded_does_not_come_back_by_itself(house: House) -> None:
    await house.load("pair")
    await house.unload("pair")
    await house.unload("b")
    await house.load("b")
    assert house.serving == "a b"


@pytest.mark.contract("X-24")
async def test_parts_stay_unless_they_are_to_go_as_well(house: House) -> None:
    await house.load("more")
    await house.unload("more")
    assert house.serving == "a b pair"


@pytest.mark.contract("X-24")
async def test_parts_are_unloaded_too_unless_another_ensemble_needs_them(house: House) -> None:
    await house.load("a", "more")
    await house.unload("more", unload_dependents=True)
    assert house.serving == "a"


async def test_requests_in_an_ensemble_finish_when_one_of_its_parts_is_unloaded(
    house: House,
) -> None:
    house.builder.held = True
    await house.load("pair")
    answer = asyncio.ensure_future(house.ask("pair"))
    await turns()
    await house.lifecycle.unload("b")
    assert house.states["b"] == "UNLOADING"
    for instance in house.builder.instances:
        instance.release()
    await asyncio.wait_for(answer, 20)  # also the step that had not begun yet
    await asyncio.wait_for(house.lifecycle.wait_unloaded(), 20)
    assert house.states["b"] == "UNAVAILABLE: unloaded"


async def test_closing_finishes_requests_in_ensembles(house: House) -> None:
    house.builder.held = True
    await house.load("more")
    answer = asyncio.ensure_future(house.ask("more"))
    await turns()
    closing = asyncio.ensure_future(house.lifecycle.close())
    await turns()
    assert not closing.done()
    for instance in house.builder.instances:
        instance.release()
    await asyncio.wait_for(asyncio.gather(answer, closing), 20)
    assert [instance.stopped for instance in house.builder.instances] == [1, 1]


async def test_aborting_fails_requests_in_ensembles(house: House) -> None:
    house.builder.held = True
    await house.load("pair")
    answer = asyncio.ensure_future(house.ask("pair"))
    await turns()
    await asyncio.wait_for(house.lifecycle.abort(), 20)
    with pytest.raises(InferenceError, match=r"in ensemble 'pair', model '.*' is being unloaded"):
        await answer
