"""`ProcessStarter`: starts model processes, and keeps spare ones that have not met their model."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from penstock.hosting.link.arena import create
from penstock.hosting.link.memory import ARENA_SIZE
from penstock.hosting.parent.child import Child, ProcessSpec
from penstock.system.reaper import Reaper

logger = logging.getLogger(__name__)

_SPARE: Final = {"spare": "model process"}
"""What stands before the lines of a process that has no model yet."""


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """A process that waits for its introduction, and the server's ends of what the two share.

    `link` and `probes` are sockets, `inputs` and `outputs` descriptors of arenas; `pulse` is the
    number that the process has for its end of the probes.
    """

    child: Child
    link: socket.socket
    probes: socket.socket
    inputs: int
    outputs: int
    pulse: int

    def close(self) -> None:
        """Close the server's ends, which nobody has taken over."""
        self.link.close()
        self.probes.close()
        self.close_arenas()

    def close_arenas(self) -> None:
        """Close the descriptors of the arenas, which may be mapped."""
        os.close(self.inputs)
        os.close(self.outputs)


class ProcessStarter:
    """Starts the processes of models.

    Of each command that models use whose specification allows it, `spares` processes more are kept:
    they have imported all that they need, and wait for a model. They are started when no other
    process is, since a model that somebody waits for comes first.
    """

    def __init__(self, reaper: Reaper, spares: int = 0) -> None:
        self._reaper = reaper
        self._spares = spares
        self._waiting: dict[str, deque[StartedProcess]] = {}
        self._specs: dict[str, ProcessSpec] = {}
        self._starting = 0
        self._refill: asyncio.Handle | None = None
        self._closed = False

    @property
    def has_spares(self) -> bool:
        """Whether processes are kept before there is a model for them."""
        return self._spares > 0

    @property
    def waiting(self) -> int:
        """Number of spare processes."""
        return sum(map(len, self._waiting.values()))

    async def start(self, spec: ProcessSpec, origin: Mapping[str, str]) -> StartedProcess:
        """A process for a model: a spare one, or a new one. Call `settled` in any case after it.

        What it prints goes to the server's output with the names of `origin`. Cancelled, it leaves
        no process behind.
        """
        self._starting += 1
        found = await self._spare(spec)
        if found is not None:
            found.child.rename(origin)
            return found
        return _started(spec, self._reaper, origin)

    def settled(self, spec: ProcessSpec) -> None:
        """A process that was started is loaded, or has failed: spare ones may be started."""
        self._starting -= 1
        self.keep(spec)

    def keep(self, spec: ProcessSpec) -> None:
        """Have spare processes for models of this specification, if it allows that."""
        if not spec.spare or not self._spares or self._closed:
            return
        self._specs.setdefault(_command(spec), spec)
        if not self._starting and self._refill is None:
            self._refill = asyncio.get_running_loop().call_soon(self._start_spares)

    async def close(self) -> None:
        """End the spare processes; none is started any more."""
        self._closed = True
        if self._refill is not None:
            self._refill.cancel()
        for waiting in self._waiting.values():
            while waiting:
                await _end(waiting.popleft())

    async def _spare(self, spec: ProcessSpec) -> StartedProcess | None:
        waiting = self._waiting.get(_command(spec)) if spec.spare else None
        while waiting:
            found = waiting.popleft()
            if found.child.runs:
                return found
            await _end(found)  # somebody has killed it
        return None

    def _start_spares(self) -> None:
        self._refill = None
        try:
            for command, spec in list(self._specs.items()):
                waiting = self._waiting.setdefault(command, deque())
                while len(waiting) < self._spares and not self._starting:
                    waiting.append(_started(spec, self._reaper, _SPARE))
        except OSError as error:  # such as too many processes: models are told, too
            logger.warning("no spare model process could be started: %s", error)


def _command(spec: ProcessSpec) -> str:
    """What processes have in common that can stand in for each other."""
    return repr((spec.python, spec.main, spec.packages, sorted(spec.environment.items())))


async def _end(started: StartedProcess) -> None:
    started.close()
    await started.child.kill()


def _started(spec: ProcessSpec, reaper: Reaper, origin: Mapping[str, str]) -> StartedProcess:
    """A new process."""
    with ExitStack() as theirs, ExitStack() as ours:
        link, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.callback(link.close)
        theirs.callback(far.close)
        probes, pulse = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.callback(probes.close)
        theirs.callback(pulse.close)
        inputs = create(ARENA_SIZE)
        ours.callback(os.close, inputs)
        outputs = create(ARENA_SIZE)
        ours.callback(os.close, outputs)
        number, shared = pulse.fileno(), (far.fileno(), inputs, outputs)
        child = Child.start(spec, reaper, origin, *shared, pulse=number)
        ours.pop_all()  # the process has begun: they are the caller's
    return StartedProcess(child, link, probes, inputs, outputs, number)
