"""Reloading: no request is lost, and the version policy selects the versions that serve."""

from __future__ import annotations

import asyncio
import logging
import os

import pytest

from fakes import until, write_model
from models.loading.lifecycle.house import ALL, House
from penstock.core.errors import InternalError, InvalidRequestError

# -- loading anew ---------------------------------------------------------------------------------


@pytest.mark.contract("M-05")
async def test_the_old_one_serves_until_the_new_one_does(house: House) -> None:
    await house.lifecycle.load("m")
    old = house.lifecycle.catalog.find("m", 1)
    house.builder.gate.clear()
    reload = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.builder.loading)
    assert house.lifecycle.catalog.find("m", 1) is old
    assert await house.ask() == ("1", ["a"])
    assert house.states == {1: "READY"}
    house.builder.gate.set()
    await reload
    assert house.lifecycle.catalog.find("m", 1) is not old


@pytest.mark.contract("M-05")
async def test_requests_in_flight_finish_on_the_old_one(house: House) -> None:
    house.builder.held = True
    await house.lifecycle.load("m")
    held = await house.hold_a_request()
    house.builder.held = False
    await house.lifecycle.load("m")
    old, new = house.builder.instances
    assert await house.ask() == ("1", ["a"])
    assert (old.batches, new.batches, old.stopped) == ([["held"]], [["a"]], 0)
    old.release()
    assert await held == ["held"]
    await house.lifecycle.wait_unloaded()
    assert (old.stopped, new.stopped) == (1, 0)


@pytest.mark.contract("M-05")
async def test_no_request_is_lost_while_a_model_is_loaded_anew(house: House) -> None:
    await house.lifecycle.load("m")
    loads = asyncio.ensure_future(_load_often(house, 5))
    answers = []
    while not loads.done():
        answers.append(await house.ask())
    await loads
    assert set(map(repr, answers)) == {"('1', ['a'])"}
    await house.lifecycle.wait_unloaded()
    assert [instance.stopped for instance in house.builder.instances] == [1] * 5 + [0]


async def _load_often(house: House, count: int) -> None:
    for _ in range(count):
        await house.lifecycle.load("m")


@pytest.mark.contract("M-05")
async def test_a_failed_reload_keeps_the_old_one_serving(house: House) -> None:
    await house.lifecycle.load("m")
    house.builder.failures[1] = RuntimeError("bad weights")
    with pytest.raises(InvalidRequestError, match="bad weights"):
        await house.lifecycle.load("m")
    assert await house.ask() == ("1", ["a"])
    assert house.states == {1: "READY: reload failed: Internal: RuntimeError: bad weights"}
    assert house.builder.instances[0].stopped == 0


async def test_a_reload_that_succeeds_clears_the_reason_of_one_that_failed(house: House) -> None:
    house.builder.remembers = True
    await house.lifecycle.load("m")
    house.builder.failures[1] = RuntimeError("bad weights")
    config = house.path / "m" / "config.pbtxt"
    before = config.stat().st_mtime_ns
    os.utime(config, ns=(1, 1))
    with pytest.raises(InvalidRequestError, match="bad weights"):
        await house.lifecycle.load("m")
    os.utime(config, ns=(before, before))
    await house.lifecycle.load("m")  # nothing has changed, so what serves is as it should be
    assert house.states == {1: "READY"}
    assert not house.lifecycle.catalog.failures


async def test_files_that_cannot_be_read_any_more_keep_the_old_one_serving(house: House) -> None:
    await house.lifecycle.load("m")
    (house.path / "m" / "config.pbtxt").write_text("no such field")
    with pytest.raises(InternalError, match="failed to poll"):
        await house.lifecycle.load("m")
    assert await house.ask() == ("1", ["a"])


async def test_when_one_version_fails_no_other_is_replaced(house: House) -> None:
    write_model(house.path, versions=(2,), config=ALL)
    await house.lifecycle.load("m")
    served = house.lifecycle.catalog.served("m")
    house.builder.failures[2] = RuntimeError("bad weights")
    with pytest.raises(InvalidRequestError):
        await house.lifecycle.load("m")
    await house.lifecycle.wait_unloaded()
    assert house.lifecycle.catalog.served("m") == served
    assert [instance.stopped for instance in house.builder.instances] == [0, 0, 1]


async def test_when_one_version_fails_no_other_becomes_ready(house: House) -> None:
    write_model(house.path, versions=(2,), config=ALL)
    house.builder.failures[2] = RuntimeError("bad weights")
    with pytest.raises(InvalidRequestError):
        await house.lifecycle.load("m")
    await house.lifecycle.wait_unloaded()
    assert house.states == {
        1: "UNAVAILABLE: unloaded",
        2: "UNAVAILABLE: Internal: RuntimeError: bad weights",
    }
    assert house.builder.instances[0].stopped == 1


async def test_a_model_that_cannot_be_finalized_is_gone_all_the_same(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    await house.lifecycle.load("m")
    house.builder.instances[0].stop_error = OSError("device lost")
    with caplog.at_level(logging.ERROR):
        await house.unload()
    assert caplog.messages == ["finalizing 'm' failed"]
    assert house.states == {1: "UNAVAILABLE: unloaded"}


# -- version policies -----------------------------------------------------------------------------


@pytest.mark.contract("M-16")
async def test_versions_that_the_policy_no_longer_selects_are_unloaded(house: House) -> None:
    write_model(house.path, versions=(2,), config=ALL)
    await house.lifecycle.load("m")
    write_model(house.path, config="version_policy { specific { versions: [1] } }")
    await house.lifecycle.load("m")
    await house.lifecycle.wait_unloaded()
    assert house.states == {1: "READY", 2: "UNAVAILABLE: unloaded"}
    assert (await house.ask())[0] == "1"


@pytest.mark.contract("R-05")
async def test_a_new_latest_version_takes_over(house: House) -> None:
    await house.lifecycle.load("m")
    write_model(house.path, versions=(2,))
    await house.lifecycle.load("m")
    await house.lifecycle.wait_unloaded()
    assert house.states == {1: "UNAVAILABLE: unloaded", 2: "READY"}


async def test_a_new_version_that_fails_leaves_the_former_serving(house: House) -> None:
    await house.lifecycle.load("m")
    write_model(house.path, versions=(2,))
    house.builder.failures[2] = RuntimeError("bad weights")
    with pytest.raises(InvalidRequestError):
        await house.lifecycle.load("m")
    assert (await house.ask())[0] == "1"


async def test_a_version_may_come_back(house: House) -> None:
    await house.lifecycle.load("m")
    await house.lifecycle.unload("m")
    await house.lifecycle.load("m")
    assert house.states == {1: "READY"}
