"""Model processes that are played by coroutines of the server's own loop, and can be killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, ClassVar, cast

from penstock.hosting.link.arena import create
from penstock.hosting.link.link import Answer, Link, Probe
from penstock.hosting.link.memory import ARENA_SIZE, SharedMemory
from penstock.hosting.link.region_sharing import Borrower
from penstock.hosting.parent.child import Child, ProcessSpec
from penstock.hosting.parent.starter import ProcessStarter, StartedProcess
from penstock.hosting.worker.host import Host
from penstock.system.reaper import Reaper


class PlayedPulse:
    """Stands for `Pulse`, without the thread that it is elsewhere."""

    def __init__(self, descriptor: int, on_readiness: Any, _: Any) -> None:
        child = PlayedChild.by_pulse[descriptor]
        child.pulse = self
        self._connection = child.probed
        self._on_readiness = on_readiness
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._connection.fileno(), self._read)

    def answer(self, *, ready: bool) -> None:
        with suppress(OSError):
            self._connection.send(bytes((Answer.READY if ready else Answer.NOT_READY,)))

    def close(self) -> None:
        self._loop.remove_reader(self._connection.fileno())

    def _read(self) -> None:
        message = self._connection.recv(1)
        if not message:
            self.close()
        elif message[0] == Probe.LIVENESS:
            self._connection.send(bytes((Answer.ALIVE,)))
        elif message[0] == Probe.READINESS:
            self._on_readiness()


class PlayedChild:
    """Stands for `Child`: one process, which is a task here and what that starts."""

    by_pulse: ClassVar[dict[int, PlayedChild]] = {}
    pids: ClassVar[Iterator[int]] = count(1)

    def __init__(
        self, link: socket.socket, probed: socket.socket, inputs: int, outputs: int, delay: float
    ) -> None:
        self.pid = next(self.pids)
        self.probed = probed
        self.pulse: PlayedPulse | None = None
        self.status: int | None = None
        self._borrower = Borrower()
        self._memory = SharedMemory(out=outputs, into=inputs, borrower=self._borrower)
        self.host = Host(self._memory, self._borrower)
        self._gone = asyncio.Event()
        self._link = link
        self._transport: asyncio.Transport | None = None
        self.by_pulse[probed.fileno()] = self
        self._life = asyncio.get_running_loop().create_task(self._live(delay))

    # -- what the server has of it ------------------------------------------------------------

    @property
    def runs(self) -> bool:
        return self.status is None

    def rename(self, origin: Mapping[str, str]) -> None:
        """What it prints is not looked at."""

    async def ended(self, seconds: float | None = None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._gone.wait()

    async def exit_reason(self) -> str:
        await self.ended(1.0)
        return f"ended with status {self.status}"

    def kill_nowait(self) -> None:
        """What it has not written is lost; what it has, the server reads."""
        if self.status is None:
            self._leave(-signal.SIGKILL)

    def abandon(self) -> None:
        self.kill_nowait()

    async def kill(self) -> None:
        self.kill_nowait()
        await self._gone.wait()

    # -- its life -----------------------------------------------------------------------------

    async def _live(self, delay: float) -> None:
        await asyncio.sleep(delay)
        made = await asyncio.get_running_loop().create_unix_connection(
            lambda: Link(self.host.handlers, self.kill_nowait, on_unsent=self.host.unsent),
            sock=self._link,
        )
        self._transport, link = made
        await self.host.serve(link)
        self._transport.close()
        self._leave(0)

    def _leave(self, status: int) -> None:
        self.status = status
        if status and self._transport is not None:
            self._transport.abort()
        elif self._transport is None:
            self._link.close()
        for task in (self._life, *self.host._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        if self.pulse is not None:
            self.pulse.close()
        del self.by_pulse[self.probed.fileno()]
        self.probed.close()
        self._memory.close()
        asyncio.get_running_loop().call_soon(self._gone.set)


class PlayedStarter(ProcessStarter):
    """Starts processes that are played."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(Reaper.__new__(Reaper))
        self._chance = chance
        self.children: list[PlayedChild] = []

    @property
    def running(self) -> list[PlayedChild]:
        return [child for child in self.children if child.runs]

    async def start(self, spec: ProcessSpec, origin: Mapping[str, str]) -> StartedProcess:
        self._starting += 1
        await asyncio.sleep(self._chance.choice((0.0, 0.01)))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        probes, probed = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        inputs, outputs = create(ARENA_SIZE), create(ARENA_SIZE)
        delay = self._chance.choice((0.0, 0.02, 0.2))
        child = PlayedChild(theirs, probed, os.dup(inputs), os.dup(outputs), delay)
        self.children.append(child)
        return StartedProcess(cast(Child, child), ours, probes, inputs, outputs, probed.fileno())
