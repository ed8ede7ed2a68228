"""How a model process starts, or why it does not."""

from __future__ import annotations

import asyncio
import os

import pytest

from hosting.parent.process.lives import children
from hosting.puppets import PATIENCE, Puppets, descriptors, eventually, everything
from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    UnavailableError,
)
from penstock.core.placement import Placement


async def test_backend_answers_from_another_process(puppets: Puppets) -> None:
    instance = await puppets.start()
    assert await puppets.report(instance, "pid") == instance.pid != os.getpid()


async def test_a_process_has_answered_when_its_streams_have_ended(puppets: Puppets) -> None:
    instance = await puppets.start()
    await asyncio.wait_for(instance.answered(), PATIENCE)
    inference = puppets.begin(instance, "report")
    waiting = asyncio.ensure_future(instance.answered())
    await everything(inference)
    await asyncio.wait_for(waiting, PATIENCE)
    assert inference.abandoned


async def test_no_code_of_the_server_runs_in_a_copy_of_it(puppets: Puppets) -> None:
    """Its finalizers might wait for threads that a copy has not, and the copy itself takes time."""
    reading, writing = os.pipe()
    watched = True

    def report() -> None:
        if watched:
            os.write(writing, b"a copy runs")

    os.register_at_fork(after_in_child=report)
    await puppets.start()
    watched = False
    os.close(writing)
    with os.fdopen(reading, "rb") as found:
        assert found.read() == b""


@pytest.mark.contract("I-08")
async def test_a_process_runs_on_the_cores_of_its_policy(puppets: Puppets) -> None:
    core = max(os.sched_getaffinity(0))
    instance = await puppets.start(placement=Placement((core, core)))
    assert instance.pid is not None
    assert os.sched_getaffinity(instance.pid) == {core} != os.sched_getaffinity(0)


async def test_a_policy_that_cannot_be_kept_prevents_the_start(puppets: Puppets) -> None:
    with pytest.raises(InvalidRequestError, match="Unable to set NUMA thread affinity"):
        await puppets.start(placement=Placement((900, 900)))


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"initialize": "raise"}, InternalError, r"^ValueError: cannot do it$"),
        ({"initialize": "refuse"}, InvalidRequestError, r"^parameter 'x' is wrong$"),
        ({"initialize": "exit"}, UnavailableError, r"'puppet_0_0' exited with status 3$"),
        ({"initialize": "leave"}, UnavailableError, r"'puppet_0_0' exited with status 0$"),
        ({"target": "hosted.puppet:Unloadable"}, InternalError, r"no module named 'engine'$"),
        ({"target": "hosted.puppet:Nobody"}, InternalError, r"has no attribute 'Nobody'$"),
        ({"target": "hosted.nothing:Puppet"}, InternalError, r"No module named 'hosted.nothing'$"),
    ],
)
async def test_what_prevents_the_start_is_told(
    puppets: Puppets, settings: dict[str, str], error: type[InferenceError], text: str
) -> None:
    instance = puppets.make(**settings)  # type: ignore[arg-type]
    with pytest.raises(error, match=text):
        await instance.start()
    assert not instance.available


@pytest.mark.slow
async def test_failed_start_leaves_nothing_behind(puppets: Puppets) -> None:
    await (await puppets.start()).stop()  # what is opened once, such as the reaper's pipe, is open
    before = descriptors()
    with pytest.raises(InternalError):
        await puppets.make(initialize="raise").start()
    assert children() == []
    await eventually(lambda: descriptors() == before)


async def test_python_that_is_not_there_leaves_nothing_behind(puppets: Puppets) -> None:
    before = descriptors()
    with pytest.raises(FileNotFoundError):
        await puppets.make(python="/no/such/python").start()
    await eventually(lambda: descriptors() == before)


async def test_cancelled_start_ends_the_process(puppets: Puppets) -> None:
    starting = asyncio.ensure_future(puppets.make(initialize="hang").start())
    await eventually(lambda: bool(children()))
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    assert children() == []
