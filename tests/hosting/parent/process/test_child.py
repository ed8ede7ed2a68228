"""The end by force of a process and of what it has started, also where nobody waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import pytest_asyncio

from fakes import turns
from harness.outcomes import raises_nothing
from hosting.puppets import PATIENCE, alive, eventually
from penstock.hosting.parent.child import Child
from penstock.system.reap import VARIABLE
from penstock.system.reaper import Reaper

_PARENT = "setsid sleep 600 & echo $!; exec sleep 600"
"""Starts a program that leaves its group."""


class Family:
    """A child, the daemon that it has started, and the reaper that watches it."""

    def __init__(self, child: Child, daemon: int, reaper: Reaper) -> None:
        self.child = child
        self.daemon = daemon
        self.reaper = reaper

    async def gone(self) -> None:
        await eventually(lambda: not alive(self.child.pid) and not alive(self.daemon))


@pytest_asyncio.fixture
async def family() -> AsyncIterator[Family]:
    reaper = Reaper()
    mark = reaper.new_mark()
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", _PARENT),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, VARIABLE: mark},
        start_new_session=True,
    )
    assert process.stdout is not None
    daemon = int(await process.stdout.readline())
    yield Family(Child(process, reaper, mark), daemon, reaper)
    reaper.close()  # kills what a failed test has left
    await process.communicate()  # the loop must not be closed before it knows of their ends


@pytest_asyncio.fixture
async def busy() -> AsyncIterator[threading.Event]:
    """The loop's one thread has to wait for this event."""
    free = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    loop.run_in_executor(None, free.wait, PATIENCE)
    yield free
    free.set()


async def test_kill_takes_along_what_has_left_the_group(family: Family) -> None:
    await family.child.kill()
    with raises_nothing():
        await family.gone()


async def test_kill_ends_what_has_no_group_of_its_own_yet() -> None:
    """As a process in its first moment."""
    process = await asyncio.create_subprocess_exec("sleep", "600")
    reaper = Reaper()
    child = Child(process, reaper, reaper.new_mark())
    await child.kill()
    assert process.returncode == -signal.SIGKILL
    reaper.close()


async def test_kill_that_is_cancelled_at_once_kills_all_the_same(family: Family) -> None:
    killing = asyncio.ensure_future(family.child.kill())
    await asyncio.sleep(0)
    killing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await killing
    await family.gone()


async def test_kill_that_is_cancelled_late_kills_all_the_same(
    family: Family, busy: threading.Event
) -> None:
    killing = asyncio.ensure_future(family.child.kill())
    await family.child.ended()
    for _ in range(5):  # by then it waits for a thread
        await asyncio.sleep(0)
    killing.cancel()
    await asyncio.wait([killing])
    assert killing.cancelled()
    busy.set()
    await family.gone()


async def test_kill_that_is_cancelled_forgets_the_group(family: Family) -> None:
    """Its number may be used again, by a group that the reaper must not kill."""
    killing = asyncio.ensure_future(family.child.kill())
    await asyncio.sleep(0)
    killing.cancel()
    with suppress(asyncio.CancelledError):
        await killing
    assert family.child.pid not in family.reaper.groups


@pytest.mark.parametrize("turns_later", range(4))
async def test_a_cancel_that_meets_the_end_is_a_cancel(family: Family, turns_later: int) -> None:
    """In each turn of the loop in which the end may have been noticed."""
    asking = asyncio.ensure_future(family.child.exit_reason())
    ended = asyncio.ensure_future(family.child.ended())
    os.kill(family.child.pid, signal.SIGKILL)
    await ended
    await turns(turns_later)
    cancelled = asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled() == cancelled


async def test_the_end_is_awaited_for_a_while_only(family: Family) -> None:
    await family.child.ended(0.01)
    assert alive(family.child.pid)
    os.kill(family.child.pid, signal.SIGKILL)
    await family.child.ended(PATIENCE)
    assert not alive(family.child.pid)
