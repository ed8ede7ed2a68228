"""Commands of operators to the backend in a model process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hosting.parent.process.lives import kill
from hosting.puppets import Puppets, eventually
from penstock.core.errors import (
    InferenceError,
    InternalError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from penstock.hosting.link.link import LARGEST_HEAD
from penstock.hosting.parent.process import ProcessInstance


@pytest.mark.slow
async def test_command_brings_back_what_the_backend_returns(puppets: Puppets) -> None:
    instance = await puppets.start()
    arguments = {"level": 2, "tags": ["weights", None], "deep": {"x": 1.5}}
    assert await instance.control("sleep", arguments) == {"action": "sleep", **arguments}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "error", "text"),
    [
        ("refuse", NotFoundError, "no such thing"),
        ("fail", InternalError, "KeyError: 'lost'"),
        ("unspeakable", InternalError, "not JSON serializable"),
    ],
)
async def test_failed_command_harms_nothing(
    puppets: Puppets, action: str, error: type[InferenceError], text: str
) -> None:
    instance = await puppets.start()
    with pytest.raises(error, match=text):
        await instance.control(action, {})
    assert await instance.control("next", {}) == {"action": "next"}
    assert await instance.healthy()


@pytest.mark.slow
async def test_reply_too_large_for_the_link_is_an_error(puppets: Puppets) -> None:
    instance = await puppets.start()
    with pytest.raises(InternalError, match="exceeds the limit"):
        await instance.control("tell", {"size": LARGEST_HEAD})
    assert await instance.control("tell", {"size": 3}) == "xxx"


@pytest.mark.slow
async def test_commands_are_carried_out_beside_each_other(puppets: Puppets) -> None:
    instance = await puppets.start()
    hanging = asyncio.ensure_future(instance.control("hang", {}))
    assert await instance.control("next", {}) == {"action": "next"}
    assert not hanging.done()
    hanging.cancel()


@pytest.mark.slow
async def test_command_goes_on_without_who_asked_for_it(puppets: Puppets, tmp_path: Path) -> None:
    instance = await puppets.start()
    asked = asyncio.ensure_future(instance.control("wait", {"until": str(tmp_path / "now")}))
    await eventually(lambda: _commands(puppets, instance, 1))
    asked.cancel()
    (tmp_path / "now").touch()
    await eventually(lambda: _commands(puppets, instance, 11))
    assert await instance.control("next", {}) == {"action": "next"}


@pytest.mark.slow
async def test_end_of_the_process_ends_the_wait_for_a_command(puppets: Puppets) -> None:
    instance = await puppets.start()
    former = instance.pid
    asked = asyncio.ensure_future(instance.control("hang", {}))
    await eventually(lambda: _commands(puppets, instance, 1))
    kill(instance)
    with pytest.raises(UnavailableError, match="process ended before the command was carried out"):
        await asked
    with pytest.raises(UnavailableError):
        await instance.control("next", {})
    await eventually(lambda: instance.pid not in (None, former))
    assert await instance.control("next", {}) == {"action": "next"}


@pytest.mark.slow
async def test_stop_ends_the_wait_for_a_command(puppets: Puppets) -> None:
    instance = await puppets.start()
    asked = asyncio.ensure_future(instance.control("hang", {}))
    await eventually(lambda: _commands(puppets, instance, 1))
    await instance.stop()
    with pytest.raises(UnavailableError, match="before the command was carried out"):
        await asked


@pytest.mark.slow
async def test_backend_that_takes_no_commands_is_not_asked(puppets: Puppets) -> None:
    instance = await puppets.start(controlled=False)
    with pytest.raises(UnsupportedError, match="does not know the action 'sleep'"):
        await instance.control("sleep", {})


@pytest.mark.slow
async def test_unready_instance_is_not_restarted(
    puppets: Puppets, caplog: pytest.LogCaptureFixture
) -> None:
    instance = await puppets.start()
    former = instance.pid
    await instance.control("sleep", {"reason": "it sleeps"})
    assert not await instance.healthy()
    checked = await puppets.report(instance, "checked")
    await eventually(lambda: _checked(puppets, instance, checked + 1))
    assert not await instance.healthy()
    assert caplog.text.count("not ready: it sleeps") == 1
    await instance.control("wake", {})
    assert await instance.healthy()
    assert instance.pid == former


async def _checked(puppets: Puppets, instance: ProcessInstance, times: int) -> bool:
    return int(await puppets.report(instance, "checked")) >= times


async def _commands(puppets: Puppets, instance: ProcessInstance, number: int) -> bool:
    return int(await puppets.report(instance, "commands")) == number
