"""A `ModelProcess` of the server whose process is the fuzzer."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from fakes import make_inference
from hosting.puppets import MODEL
from penstock.core.backend import InstanceContext
from penstock.core.config import ModelConfig
from penstock.hosting.link.arena import create
from penstock.hosting.link.link import encode_answer
from penstock.hosting.link.memory import ARENA_SIZE
from penstock.hosting.link.messages import Kind
from penstock.hosting.parent.child import Child, ProcessSpec
from penstock.hosting.parent.in_flight import InFlight
from penstock.hosting.parent.model_process import ModelProcess
from penstock.hosting.parent.services import ModelServices
from penstock.hosting.parent.starter import ProcessStarter
from penstock.system.reaper import Reaper


class _Inert(Child):
    """No process, of which it is known whether it was to be killed."""

    def __init__(self) -> None:
        self.killed = False

    @property
    def pid(self) -> int:
        return os.getpid()

    def kill_nowait(self) -> None:
        self.killed = True


class Victim:
    """The server's side of a link, with three requests in flight, and the socket to it."""

    def __init__(self, services: ModelServices) -> None:
        context = InstanceContext(
            name=f"{MODEL}_0_0",
            config=ModelConfig(name=MODEL),
            version=1,
            version_path=Path("/models/puppet/1"),
            run=_nowhere,
        )
        self.in_flight = InFlight(serial=False, ahead=1, limit=None)
        spec = ProcessSpec("", False, ())
        self.process = ModelProcess(
            spec, context, ProcessStarter(Reaper()), self.in_flight, lambda _: None, services
        )
        self._child = self.process._child = _Inert()

    async def open(self) -> None:
        ours, self._theirs = socket.socketpair()
        inputs, outputs = create(ARENA_SIZE), create(ARENA_SIZE)
        memory = self.process._memory = self.process._share_memory(inputs, outputs)
        os.close(inputs)
        os.close(outputs)
        await self.process._connect(ours, memory)
        self.tell(b"".join(encode_answer(Kind.READY, True)))
        for _ in range(3):
            self.in_flight.send([make_inference()], lambda: None)

    def tell(self, data: bytes) -> bool:
        """Have it read the bytes; whether it goes on after them, and has not killed the process."""
        assert self.process._link is not None
        self.process._link.data_received(data)
        return not self._child.killed

    def close(self) -> None:
        """The process has ended."""
        self.process.abandon()
        if self.process._link is not None:
            self.process._link.close()
        self.process._release_memory()
        self._theirs.close()


async def _nowhere(*_: Any) -> Any:
    raise AssertionError("nothing of a model runs here")
