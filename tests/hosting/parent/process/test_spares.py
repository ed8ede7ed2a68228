"""Processes that are started before there is a model for them."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from hosting.parent.process.lives import children, kill, pid_of
from hosting.puppets import Puppets, eventually
from penstock.core.errors import InferenceError
from penstock.hosting.parent.starter import ProcessStarter
from penstock.system.model_variables import passed_on


@pytest.fixture
def spared(puppets: Puppets) -> Puppets:
    """One process more than there are models."""
    puppets.starter = ProcessStarter(puppets.reaper, 1)
    return puppets


async def _spare(puppets: Puppets, *others: int) -> int:
    """The spare process, once it is there; `others` have models."""
    await eventually(lambda: puppets.starter.waiting == 1)
    [pid] = set(children()) - set(others)
    return pid


async def test_the_next_model_and_a_restart_get_the_process_that_waits(spared: Puppets) -> None:
    first = await spared.start(spare=True)
    waited = await _spare(spared, pid_of(first))
    second = await spared.start(name="puppet_0_1", spare=True)
    assert second.pid == waited
    assert (await spared.ask(second, "echo")).error is None
    waits = await _spare(spared, pid_of(first), waited)
    kill(first)
    await eventually(lambda: first.pid == waits)
    assert (await spared.ask(first, "echo")).error is None
    await second.stop()
    await eventually(lambda: spared.starter.waiting == 1)
    assert waited not in children()


async def test_what_it_prints_has_the_name_of_its_model(
    spared: Puppets, capfd: pytest.CaptureFixture[str]
) -> None:
    first = await spared.start(spare=True)
    await _spare(spared, pid_of(first))
    second = await spared.start(name="puppet_0_1", spare=True)
    await spared.ask(second, "output", text="hello")
    await second.stop()
    printed = capfd.readouterr()
    assert printed.out == "[model=puppet instance=puppet_0_1] hello\n"


async def test_others_get_processes_of_their_own(spared: Puppets) -> None:
    first = await spared.start(spare=True)
    waits = await _spare(spared, pid_of(first))
    other = await spared.start(name="puppet_0_1")
    environment = {**passed_on(os.environ), "ANOTHER": "1"}
    third = await spared.start(name="puppet_0_2", spare=True, environment=environment)
    assert waits not in (other.pid, third.pid)
    await eventually(lambda: spared.starter.waiting == 2)


async def test_one_that_was_killed_is_not_given_to_a_model(spared: Puppets) -> None:
    first = await spared.start(spare=True)
    waits = await _spare(spared, pid_of(first))
    os.kill(waits, signal.SIGKILL)
    await eventually(lambda: waits not in children())
    second = await spared.start(name="puppet_0_1", spare=True)
    assert second.pid != waits
    assert (await spared.ask(second, "echo")).error is None


async def test_a_model_that_fails_takes_its_process_with_it(spared: Puppets) -> None:
    first = await spared.start(spare=True)
    waits = await _spare(spared, pid_of(first))
    with pytest.raises(InferenceError):
        await spared.start(name="puppet_0_1", spare=True, initialize="raise")
    assert waits not in children()
    assert await _spare(spared, pid_of(first)) != waits


async def test_none_is_left_after_the_end(spared: Puppets) -> None:
    first = await spared.start(spare=True)
    await _spare(spared, pid_of(first))
    await spared.starter.close()
    assert children() == [first.pid]
    second = await spared.start(name="puppet_0_1", spare=True)
    await asyncio.gather(first.stop(), second.stop())
    assert children() == []


async def test_none_is_left_by_an_end_while_one_is_started(spared: Puppets) -> None:
    first = await spared.start(spare=True)
    await spared.starter.close()
    assert children() == [first.pid]
