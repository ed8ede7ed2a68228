"""A model process as the system sees it: spawn, exit status, and kill."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from penstock.core.flow_control import WINDOW, Window
from penstock.hosting.worker import bootstrap
from penstock.system.model_variables import passed_on
from penstock.system.printed import PrintedOutput
from penstock.system.private_tmp import pointing_to, private_tmp
from penstock.system.reap import VARIABLE, kill_group, kill_marked
from penstock.system.reaper import Reaper


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """The command of a model process: the backend as `module:Class`, and the Python to run it.

    `main` is the function that serves the link there; `environment` is all that it gets of one.
    Times are in seconds: an execution that takes longer than `execution_timeout` ends the process;
    a backend has `stop_timeout` to finalize before it is killed. While executions are quick, up to
    `ahead` batches are sent before the first is done. `window` is the flow-control window of
    responses. While requests wait, a process that gives no sign for `hang_seconds` is hung (0: no
    hang detection); with `restart_hung` it is then ended and started anew. A
    `controlled` backend takes commands of operators; `usage` asks for the tokens of each request.
    With `spare`, a process of the same command may be started before it is wanted.
    """

    target: str
    serial: bool
    packages: tuple[Path, ...]
    python: str = sys.executable
    main: str = "penstock.hosting.worker.host:run"
    execution_timeout: float | None = None
    ahead: int = 1
    stop_timeout: float = 10.0
    window: Window = WINDOW
    private_tmp: bool = False
    hang_seconds: float = 30.0
    restart_hung: bool = False
    controlled: bool = False
    environment: Mapping[str, str] = field(default_factory=lambda: passed_on(os.environ))
    usage: bool = False
    spare: bool = False


class RunningProcess(Protocol):
    """A process of ours, as asyncio has them too."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def kill(self) -> None: ...


class SpawnedProcess:
    """A process that starts in a moment, however much memory this one has.

    The event loop's own way copies the tables of that memory first (`fork`), on the loop: 5 ms on a
    quiet machine and 25 on a busy one, where this (`vfork`) takes half of one. A thread waits for
    its end.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        try:
            threading.Thread(target=self._wait, name=f"wait-{process.pid}", daemon=True).start()
        except RuntimeError as error:  # there are too many threads
            process.kill()
            process.wait()
            raise OSError(errno.EAGAIN, str(error)) from error

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        """Wait until it has ended; its status."""
        await self._ended.wait()
        return self._process.wait()

    def kill(self) -> None:
        """Send SIGKILL to it alone; raises `ProcessLookupError` where it is gone."""
        self._process.kill()

    def _wait(self) -> None:
        self._process.wait()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._ended.set)


class Child:
    """One process, and everything that it starts: a process group of their own.

    Processes that leave the group, as daemons do, still have its mark in their environment.
    """

    def __init__(
        self,
        process: RunningProcess,
        reaper: Reaper,
        mark: str,
        folder: Path | None = None,
        printed: PrintedOutput | None = None,
    ) -> None:
        self._process = process
        self._printed = printed
        self._mark = mark
        self._folder = folder
        self._reaper = reaper
        reaper.watch(self.pid)

    @classmethod
    def start(
        cls,
        spec: ProcessSpec,
        reaper: Reaper,
        origin: Mapping[str, str],
        *descriptors: int,
        pulse: int,
    ) -> Child:
        """Start it with these descriptors open, all but `pulse` as arguments of its command.

        What it prints goes to the server's output with the names of `origin`.
        """
        mark = reaper.new_mark()
        folder = private_tmp(reaper) if spec.private_tmp else None
        more = {**spec.environment, VARIABLE: mark, **(pointing_to(folder) if folder else {})}
        printed = PrintedOutput(origin)
        try:
            process = _spawned(spec, more, printed, descriptors, pulse)
        except OSError:  # such as a Python that is not there
            if folder is not None:
                folder.rmdir()
            raise
        finally:
            printed.close_ends()
        return cls(process, reaper, mark, folder, printed)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.returncode is None

    def rename(self, origin: Mapping[str, str]) -> None:
        """Put other names before what it prints from now on."""
        if self._printed is not None:
            self._printed.rename(origin)

    async def ended(self, seconds: float | None = None) -> None:
        """Wait until it exits by itself, for so many seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()

    async def exit_reason(self) -> str:
        """Why it ended, as a verb phrase; it has closed its link, and gets a second to exit."""
        await self.ended(1.0)
        status = self._process.returncode
        if status is None:
            return "closed its link to the server"
        if status < 0:
            return f"was killed by signal {-status}{_signal_name(-status)}"
        return f"exited with status {status}"

    def kill_nowait(self) -> None:
        """Kill its process group, without waiting; processes that left the group go with `kill`."""
        kill_group(self.pid)
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()  # it has no group yet if it was started just now

    def abandon(self) -> None:
        """Kill it without waiting; the reaper ends what is left with the server."""
        self.kill_nowait()
        self._reaper.forget(self.pid)

    async def kill(self) -> None:
        """Kill it and everything that it has started, and remove its folder.

        Cancelled, this does not wait for the end.
        """
        self.kill_nowait()
        try:
            await self._process.wait()
        finally:
            self._reaper.forget(self.pid)
            # On a thread, since it reads something of every process of the machine. It goes on
            # when this is cancelled, or has not begun.
            loop = asyncio.get_running_loop()
            await asyncio.shield(loop.run_in_executor(None, self._clear))

    def _clear(self) -> None:
        kill_marked(self._mark)
        if self._printed is not None:
            self._printed.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _spawned(
    spec: ProcessSpec,
    more: Mapping[str, str],
    printed: PrintedOutput,
    descriptors: tuple[int, ...],
    pulse: int,
) -> SpawnedProcess:
    command = [spec.python, "-P", bootstrap.__file__, spec.main]
    process = subprocess.Popen(
        [*command, *map(str, descriptors), *map(str, spec.packages)],
        stdin=subprocess.DEVNULL,
        stdout=printed.stdout,
        stderr=printed.stderr,
        env=more,
        pass_fds=(*descriptors, pulse),
    )
    return SpawnedProcess(process)


def _signal_name(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:  # one of the many real-time signals
        return ""
