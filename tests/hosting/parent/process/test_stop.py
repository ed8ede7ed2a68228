"""How a model process is stopped, whatever it does then."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness.outcomes import raises_nothing
from hosting.parent.process.lives import children, kill, pid_of
from hosting.puppets import PATIENCE, Puppets, alive, descriptors, eventually, everything
from penstock.core.errors import UnavailableError


async def test_stop_lets_the_backend_finalize(puppets: Puppets, tmp_path: Path) -> None:
    mark = tmp_path / "finalized"
    instance = await puppets.start(mark=str(mark))
    pid = pid_of(instance)
    await instance.stop()
    assert mark.exists()
    assert not alive(pid)
    assert not instance.available


async def test_stop_while_streaming_fails_the_stream(puppets: Puppets, tmp_path: Path) -> None:
    mark = tmp_path / "finalized"
    instance = await puppets.start(mark=str(mark))
    inference = puppets.begin(instance, "drip")
    await anext(inference.stream)
    await instance.stop()
    with pytest.raises(UnavailableError, match="model 'puppet' is being unloaded"):
        await everything(inference)
    assert mark.exists()


@pytest.mark.parametrize("how", ["raise", "exit"])
async def test_finalize_that_fails_ends_the_process_all_the_same(
    puppets: Puppets, how: str
) -> None:
    instance = await puppets.start(finalize=how)
    pid = pid_of(instance)
    await instance.stop()
    assert not alive(pid)


async def test_finalize_that_hangs_is_cut_short(puppets: Puppets) -> None:
    instance = await puppets.start(finalize="hang", stop_timeout=0.2)
    pid = pid_of(instance)
    async with asyncio.timeout(PATIENCE):
        await instance.stop()
    assert not alive(pid)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grandchild", "daemon"])
async def test_stop_takes_grandchildren_along(puppets: Puppets, kind: str) -> None:
    instance = await puppets.start()
    grandchild = int((await puppets.ask(instance, kind)).parameters["pid"])
    await instance.stop()
    await eventually(lambda: not alive(grandchild))


async def test_stop_during_a_restart_leaves_no_process(puppets: Puppets) -> None:
    instance = await puppets.start()
    kill(instance)
    await eventually(lambda: not instance.available)
    await instance.stop()
    assert children() == []


async def test_stop_of_what_never_ran_does_nothing(puppets: Puppets) -> None:
    with raises_nothing():
        await puppets.make().stop()


@pytest.mark.slow
async def test_many_lives_leave_nothing_behind(puppets: Puppets) -> None:
    await (await puppets.start()).stop()
    files, tasks = descriptors(), len(asyncio.all_tasks())
    for _ in range(3):
        instances = await asyncio.gather(*(puppets.start(name=f"p_{n}") for n in range(4)))
        for instance in instances:
            puppets.begin(instance, "drip")
        kill(instances[0])
        await asyncio.gather(*(instance.stop() for instance in instances))
    await eventually(lambda: len(asyncio.all_tasks()) <= tasks)
    assert children() == []
    assert descriptors() <= files  # earlier tests may have left some to the collector
    assert puppets.statistics.in_flight == 0


@pytest.mark.slow
async def test_stop_that_is_cancelled_leaves_no_process(puppets: Puppets, tmp_path: Path) -> None:
    mark = tmp_path / "finalizing"
    await (await puppets.start()).stop()
    files = descriptors()
    instance = await puppets.start(finalize="hang", mark=str(mark))
    stopping = asyncio.ensure_future(instance.stop())
    await eventually(mark.exists)
    stopping.cancel()
    await asyncio.wait([stopping])
    await eventually(lambda: children() == [] and descriptors() <= files)
