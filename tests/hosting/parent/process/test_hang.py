"""A model process that hangs, and one that only takes its time."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from harness.serving import suspend
from hosting.parent.process.lives import pid_of
from hosting.puppets import PATIENCE, Puppets, eventually, everything, order
from penstock.core.errors import UnavailableError
from penstock.hosting.parent.process import ProcessInstance

pytestmark = pytest.mark.slow


def stop(instance: ProcessInstance) -> int:
    pid = pid_of(instance)
    suspend(pid)
    return pid


async def test_stopped_process_is_hung_until_it_goes_on(
    puppets: Puppets, caplog: pytest.LogCaptureFixture
) -> None:
    instance = await puppets.start(hang_seconds=0.3)
    told = asyncio.Event()
    instance.on_available = told.set
    pid = stop(instance)
    inference = puppets.begin(instance, "echo")
    await eventually(lambda: instance.metrics()["penstock_hung_processes"] == 1)
    assert instance.metrics()["penstock_process_hangs_total"] == 1
    assert instance.alive
    await eventually(lambda: not instance.available)
    assert not await instance.healthy()
    assert f"process, pid {pid}, has given no sign for 0.3 s while requests wait" in caplog.text
    os.kill(pid, signal.SIGCONT)
    await asyncio.wait_for(told.wait(), PATIENCE)
    assert len(await everything(inference)) == 1
    assert await instance.healthy()
    assert instance.pid == pid
    assert instance.metrics()["penstock_hung_processes"] == 0
    assert "instance 'puppet_0_0': its model process gives signs again" in caplog.text


async def test_hung_process_is_started_anew_on_request(
    puppets: Puppets, caplog: pytest.LogCaptureFixture
) -> None:
    instance = await puppets.start(serial=True, hang_seconds=1.0, restart_hung=True)
    former = stop(instance)
    (begun,), _ = puppets.tell(instance, order("echo"))
    (ahead,), _ = puppets.tell(instance, order("echo"))
    with pytest.raises(
        UnavailableError,
        match=r"its model process was stopped since it gave no sign for 1 s; it is being",
    ):
        await everything(begun)
    assert len(await everything(ahead)) == 1
    assert instance.pid not in (None, former)
    assert instance.metrics()["penstock_process_hangs_total"] == 1
    assert await instance.healthy()


async def test_idle_process_is_hung_with_the_next_request(puppets: Puppets) -> None:
    """And one that hangs while nobody waits any more is so until it gives a sign."""
    instance = await puppets.start(hang_seconds=0.3)
    asked = await puppets.start(hang_seconds=0.3, name="puppet_0_1")
    pids = stop(instance), stop(asked)
    puppets.begin(asked, "echo")
    await eventually(lambda: not asked.available)
    assert instance.available
    inference = puppets.begin(instance, "echo")
    await eventually(lambda: not instance.available)
    inference.stream.close()
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    await eventually(lambda: instance.available)


async def test_execution_that_takes_its_time_is_not_hung(puppets: Puppets) -> None:
    """Also where it lets nothing else on the event loop run, and computes in Python."""
    instance = await puppets.start(serial=True, hang_seconds=1.0)
    await puppets.settle(instance)
    inference = puppets.begin(instance, "compute", seconds=2.5)
    assert len(await everything(inference)) == 1
    assert instance.metrics()["penstock_process_hangs_total"] == 0


async def test_code_that_holds_the_lock_of_python_is_hung(puppets: Puppets, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "now")
    instance = await puppets.start(serial=True, hang_seconds=0.3)
    inference = puppets.begin(instance, "hold_lock", until=str(tmp_path / "now"))
    await eventually(lambda: not instance.available)
    os.close(os.open(tmp_path / "now", os.O_WRONLY))
    assert len(await everything(inference)) == 1
    await eventually(lambda: instance.available)
