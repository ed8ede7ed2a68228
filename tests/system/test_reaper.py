"""Nothing outlives the server, however it ends."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
import pytest_asyncio

from harness.no_descriptors import no_descriptors
from harness.processes import command_of, read_of
from hosting.puppets import PATIENCE, alive, descriptors, eventually
from penstock.system import reap
from penstock.system.reap import VARIABLE, kill_group, kill_marked
from penstock.system.reaper import Reaper


@dataclass(frozen=True)
class Server:
    """Process ids of a server and of what it has started, and the model's shared memory."""

    pid: int
    model: int
    grandchild: int
    reaper: int
    memory: Path


def members(group: int) -> set[int]:
    """The processes of a group."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = set()
    for pid in filter(alive, pids):
        with suppress(ProcessLookupError):  # it has ended since
            if os.getpgid(pid) == group:
                found.add(pid)
    return found


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    """A server of its own process with one model process, which has started another."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, Path(__file__).parent / "orphan.py", stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
    model, grandchild, reaper, memory = line.decode().split()
    path = Path("/dev/shm", memory)
    started = Server(process.pid, int(model), int(grandchild), int(reaper), path)
    yield started
    for pid in (started.model, started.grandchild, started.pid):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    await process.wait()
    await asyncio.wait_for(process.stdout.read(), PATIENCE)  # to its end: nobody holds it open


@pytest.fixture
def group() -> Iterator[int]:
    """A process group with one sleeping process."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.slow
async def test_killed_server_leaves_neither_model_nor_grandchild(server: Server) -> None:
    os.kill(server.pid, signal.SIGKILL)
    await eventually(lambda: not alive(server.model) and not alive(server.grandchild))
    await eventually(lambda: not alive(server.reaper))


@pytest.mark.slow
async def test_killed_server_leaves_no_shared_memory(server: Server) -> None:
    assert server.memory.exists()
    os.kill(server.pid, signal.SIGKILL)
    await eventually(lambda: not server.memory.exists())


@pytest.mark.slow
async def test_the_process_that_removes_shared_memory_ends_with_the_others(server: Server) -> None:
    before = members(server.model)
    assert {server.model, server.grandchild} < before
    os.kill(server.pid, signal.SIGKILL)
    await eventually(lambda: not any(map(alive, before)))


@pytest.mark.slow
async def test_killed_server_leaves_nothing_although_its_reaper_was_killed_before(
    server: Server,
) -> None:
    os.kill(server.reaper, signal.SIGKILL)
    await eventually(lambda: reapers_of(server.pid) not in ([], [server.reaper]))
    os.kill(server.pid, signal.SIGKILL)
    await eventually(lambda: not alive(server.model) and not alive(server.grandchild))


@pytest.mark.slow
async def test_stopped_model_process_is_killed_too(server: Server) -> None:
    """It cannot see that its link is closed."""
    os.kill(server.model, signal.SIGSTOP)
    os.kill(server.pid, signal.SIGKILL)
    await eventually(lambda: not alive(server.model) and not alive(server.grandchild))


async def test_the_reaper_has_no_secrets_in_its_environment(
    group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is of the server's user, and so are models."""
    monkeypatch.setenv("ADMIN", "the secret of a restriction")
    reaper = Reaper()
    reaper.watch(group)
    assert b"the secret" not in read_of(reaper.pid or 0, "environ")
    reaper.close()


async def test_reaper_for_which_there_is_no_descriptor_is_started_later(
    group: int, caplog: pytest.LogCaptureFixture
) -> None:
    reaper = Reaper()
    reaper.watch(group)
    first = reaper.pid
    with no_descriptors():
        os.kill(first or 0, signal.SIGKILL)
        await eventually(lambda: "can be started" in caplog.text)
    await eventually(lambda: reaper.pid not in (None, first))
    await eventually(lambda: str(group).encode() in command_of(reaper.pid or 0))
    reaper.close()


async def test_group_is_left_alone_while_the_server_lives(group: int) -> None:
    reaper = Reaper()
    reaper.watch(group)
    await eventually(lambda: ignores(reaper.pid or 0, signal.SIGTERM))  # it has begun
    assert alive(group)
    reaper.forget(group)
    reaper.close()
    assert alive(group)


async def test_group_that_is_still_known_at_the_end_is_killed(group: int) -> None:
    reaper = Reaper()
    reaper.watch(group)
    reaper.close()
    await eventually(lambda: not alive(group))


def marked(mark: str) -> subprocess.Popen[bytes]:
    """A program that a model with this mark has started, in a session of its own."""
    environment = {**os.environ, VARIABLE: mark}
    return subprocess.Popen(["sleep", "600"], start_new_session=True, env=environment)


@pytest.mark.parametrize("unseen", [1, 2, 3, 8])
def test_what_is_becoming_another_program_is_killed(
    monkeypatch: pytest.MonkeyPatch, unseen: int
) -> None:
    """For a moment nothing can be read of it."""
    program, looks = marked("moment"), itertools.count(1)

    def read(path: str, mode: str) -> IO[bytes]:
        is_unseen = path.startswith(f"/proc/{program.pid}/") and next(looks) <= unseen
        return io.BytesIO() if is_unseen else open(path, mode)

    monkeypatch.setattr(reap, "open", read, raising=False)
    kill_marked("moment")
    program.terminate()  # which comes too late
    assert program.wait(PATIENCE) == -signal.SIGKILL


async def test_what_has_left_the_group_of_its_model_is_known_by_its_mark(group: int) -> None:
    """`group` stands for the program of somebody else."""
    reaper = Reaper()
    gone = marked(reaper.new_mark())
    reaper.watch(gone.pid)
    reaper.forget(gone.pid)
    assert alive(gone.pid)
    reaper.close()
    assert gone.wait(PATIENCE) == -signal.SIGKILL
    assert alive(group)


@pytest.fixture
def no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a system without /proc says."""

    def refuse(path: str) -> list[str]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "listdir", refuse)


@pytest.mark.usefixtures("no_proc")
def test_group_is_killed_where_processes_cannot_be_listed(group: int) -> None:
    kill_marked("none")
    assert alive(group)
    kill_group(group)
    assert os.waitstatus_to_exitcode(os.waitpid(group, 0)[1]) == -signal.SIGKILL
    kill_group(group)


def test_mark_of_a_child_is_that_of_no_other() -> None:
    reaper, other = Reaper(), Reaper()
    marks = [reaper.new_mark() for _ in range(12)] + [other.new_mark()]
    assert [mark for mark in marks if mark.startswith(marks[0])] == [marks[0]]


async def test_signals_that_ask_to_end_do_not_end_the_reaper(group: int) -> None:
    """Ctrl-C reaches the whole terminal; the reaper has to outlast the server."""
    reaper = Reaper()
    reaper.watch(group)
    pid = reaper.pid
    assert pid is not None
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    await eventually(lambda: all(ignores(pid, number) for number in numbers))
    for number in numbers:
        os.kill(pid, number)
    reaper.close()
    await eventually(lambda: not alive(group))


async def test_a_stopped_reaper_does_its_work_when_it_is_closed(group: int) -> None:
    reaper = Reaper()
    folder = reaper.folder()
    reaper.watch(group)
    assert reaper.pid is not None
    os.kill(reaper.pid, signal.SIGSTOP)
    reaper.close()
    await eventually(lambda: not alive(group))
    assert not folder.exists()


async def test_the_work_of_a_reaper_that_is_stuck_is_done_by_the_server(
    group: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = tmp_path / "stuck.py"
    stuck.write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr(reap, "__file__", str(stuck))
    reaper = Reaper()
    folder = reaper.folder()
    reaper.watch(group)
    pid = reaper.pid
    assert pid is not None
    reaper.close()
    await eventually(lambda: not alive(group))
    assert not alive(pid)
    assert not folder.exists()


async def test_new_reaper_learns_of_all_groups(group: int) -> None:
    reaper = Reaper()
    reaper.watch(group)
    former = reaper.pid
    assert former is not None
    os.kill(former, signal.SIGKILL)
    await eventually(lambda: reaper.pid not in (None, former))
    reaper.close()
    await eventually(lambda: not alive(group))


async def test_telling_a_dead_reaper_starts_a_new_one(group: int) -> None:
    """The loop has had no turn in which to notice."""
    reaper = Reaper()
    reaper.watch(1 << 22)
    assert reaper.pid is not None
    kill_and_wait(reaper.pid)
    reaper.watch(group)
    reaper.close()
    await eventually(lambda: not alive(group))


async def test_close_leaves_nothing_open() -> None:
    before = descriptors()
    for _ in range(3):
        reaper = Reaper()
        reaper.watch(1 << 22)
        reaper.forget(1 << 22)
        reaper.close()
    assert descriptors() == before


async def test_folder_goes_with_all_that_it_holds() -> None:
    reaper = Reaper()
    folder = reaper.folder()
    (folder / "below").mkdir()
    (folder / "below" / "file").write_text("x")
    assert reaper.folder() == folder
    reaper.close()
    assert not folder.exists()


async def test_folder_goes_although_the_reaper_was_killed_before() -> None:
    reaper = Reaper()
    folder = reaper.folder()
    assert reaper.pid is not None
    kill_and_wait(reaper.pid)
    reaper.watch(1 << 22)
    assert folder.exists()
    reaper.close()
    assert not folder.exists()


async def test_folder_that_somebody_has_removed_is_made_again() -> None:
    reaper = Reaper()
    reaper.folder().rmdir()
    folder = reaper.folder()
    assert folder.exists()
    reaper.close()
    assert not folder.exists()


async def test_reaper_that_knows_nothing_has_no_process() -> None:
    reaper = Reaper()
    assert reaper.pid is None
    reaper.close()


def kill_and_wait(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def ignores(pid: int, number: int) -> bool:
    """Whether the process has said that a signal shall do nothing."""
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    return bool(ignored >> (number - 1) & 1)


def reapers_of(pid: int) -> list[int]:
    """The children of a process that run `reap`."""
    found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in found if b"reap.py" in command_of(child)]
