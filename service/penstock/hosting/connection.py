"""One model process, from its start to its end, and the requests that it is answering."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.backend import InstanceContext
from penstock.core.config import config_to_json
from penstock.core.errors import InferenceError, UnavailableError, error_from_code
from penstock.core.inference import Inference
from penstock.core.request import InferenceResponse
from penstock.hosting import bootstrap
from penstock.hosting.arena import create
from penstock.hosting.executions import Executions
from penstock.hosting.link import Link
from penstock.hosting.memory import ARENA_SIZE, SharedMemory
from penstock.hosting.messages import (
    Kind,
    pack_request,
    unpack_next_response,
    unpack_response,
)
from penstock.hosting.reaper import Reaper
from penstock.hosting.services import ModelServices, ServedCalls

logger = logging.getLogger(__name__)

_PROBE_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """How to start the model process: the backend as `module:Class`, and by which Python.

    `main` is the function that serves the link there. Times are in seconds: an execution that
    takes longer than `execution_timeout` ends the process; a backend has `stop_timeout` to
    finalize before it is killed. While executions are quick, up to `ahead` batches are sent
    before the first is done.
    """

    target: str
    serial: bool
    packages: tuple[Path, ...]
    python: str = sys.executable
    main: str = "penstock.hosting.host:run"
    execution_timeout: float | None = None
    ahead: int = 1
    stop_timeout: float = 10.0


class Connection:
    """The link to a model process; `ended` tells how it came to its end."""

    def __init__(
        self,
        spec: ProcessSpec,
        context: InstanceContext,
        reaper: Reaper,
        services: ModelServices | None = None,
    ) -> None:
        self.metrics: Mapping[str, float] = {}
        self._spec = spec
        self._context = context
        self._reaper = reaper
        self._loop = asyncio.get_running_loop()
        self._process: asyncio.subprocess.Process | None = None
        self._link: Link | None = None
        self._memory: SharedMemory | None = None
        self._calls: ServedCalls | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._health: asyncio.Future[bool] | None = None
        self._complaint = ""
        self._numbers = 0
        self._inferences: dict[int, Inference] = {}
        self._executions = Executions(
            serial=spec.serial,
            ahead=spec.ahead,
            limit=spec.execution_timeout,
            on_late=self._late,
        )
        self._handlers: dict[int, Callable[[Any, memoryview], None]] = {
            Kind.READY: lambda _, __: _settle(self._ready, None),
            Kind.FAILED: self._failed,
            Kind.RESPONSE: self._response,
            Kind.END: self._end,
            Kind.ERROR: self._error,
            Kind.DONE: lambda header, _: self._executions.done(*header),
            Kind.EXECUTED: self._executed,
            Kind.HEALTH: self._told_health,
            Kind.METRICS: self._told_metrics,
            Kind.UNHEALTHY: self._unhealthy,
            Kind.LOG: _log,
            Kind.FREE: lambda header, _: self._shared.free(header),
        }
        self._services = services

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def _shared(self) -> SharedMemory:
        assert self._memory is not None
        return self._memory

    async def open(self) -> None:
        """Start the process and wait until its model is loaded."""
        await self._start()
        self._serve_calls()
        assert self._link is not None
        self._link.send(Kind.INITIALIZE, self._introduction())
        await asyncio.wait([self._ready, self._lost], return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            reason = await self.ended()
            raise UnavailableError(f"the model process of instance '{self._context.name}' {reason}")
        self._ready.result()

    async def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        inputs, outputs = create(ARENA_SIZE), create(ARENA_SIZE)
        self._memory = SharedMemory(out=os.dup(inputs), into=os.dup(outputs))
        spawning = asyncio.ensure_future(self._spawn(theirs.fileno(), inputs, outputs))
        try:
            self._process = await asyncio.shield(spawning)
        except BaseException:
            ours.close()
            self._process = await spawning  # if this was cancelled, it is there all the same
            raise
        finally:
            theirs.close()
            os.close(inputs)
            os.close(outputs)
        self._reaper.watch(self.pid)
        _, self._link = await self._loop.create_unix_connection(
            lambda: Link(self._receive, lambda: _settle(self._lost, None)), sock=ours
        )
        self._shared.open(lambda freed: self._send(Kind.FREE, freed))

    def _serve_calls(self) -> None:
        """Let the process make requests of its own."""
        if self._services is not None:
            self._calls = ServedCalls(self._services, self._context, self._shared, self._send)
            self._handlers |= self._calls.handlers

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        """Send a batch; `done` is called when the process may have another."""
        assert self._link is not None
        self._numbers += 1
        number = self._numbers
        requests, payload = [], []
        for inference in batch:
            header, buffers = pack_request(
                self._accept(inference), inference.request, self._shared.exchange
            )
            requests.append(header)
            payload += buffers
        self._link.send(Kind.EXECUTE, (number, requests), payload)
        self._executions.sent(number, batch, done)

    def _late(self) -> None:
        """An execution has had its time: end the process, which is seen as any other end."""
        limit = self._spec.execution_timeout
        self._complaint = f"an execution took longer than its limit of {limit:g} s"
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def probe(self) -> bool:
        """Ask the backend for its health; a process that does not answer is not healthy."""
        if self._spec.serial and len(self._executions):
            return True  # it is executing, and answers when it is done
        if self._health is None:
            assert self._link is not None
            self._health = self._loop.create_future()
            self._link.send(Kind.PROBE, None)
        try:
            return await asyncio.wait_for(asyncio.shield(self._health), _PROBE_TIMEOUT)
        except TimeoutError:
            return False

    async def ended(self) -> str:
        """Wait for the end of the process; how it ended, as a verb phrase."""
        assert self._process is not None
        await self._lost
        if self._complaint:
            return f"was stopped since {self._complaint}"
        try:
            status = await asyncio.wait_for(self._process.wait(), 1.0)
        except TimeoutError:
            return "closed its link to the server"
        if status < 0:
            return f"was killed by signal {-status}{_signal_name(-status)}"
        return f"exited with status {status}"

    def fail_all(self, error: InferenceError) -> None:
        """Answer everything still open with an error."""
        inferences, self._inferences = self._inferences, {}
        for inference in inferences.values():
            inference.fail(error, from_backend=True)
        self._executions.clear()
        _settle(self._health, False)
        if self._calls is not None:
            self._calls.close()

    async def stop(self) -> None:
        """Let the backend finalize, then see that the process is gone."""
        assert self._link is not None
        assert self._process is not None
        self.fail_all(UnavailableError(f"model '{self._context.config.name}' is being unloaded"))
        self._link.send(Kind.FINALIZE, None)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), self._spec.stop_timeout)
        await self.kill()

    async def kill(self) -> None:
        """End the process and everything that it has started."""
        if self._calls is not None:
            self._calls.close()
        if self._link is not None:
            self._link.close()
        if self._memory is not None:
            self._memory.close()
        if self._process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        try:
            await self._process.wait()
        finally:
            self._reaper.forget(self.pid)

    async def _spawn(self, *descriptors: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            self._spec.python,
            "-P",
            bootstrap.__file__,
            self._spec.main,
            *map(str, descriptors),
            *map(str, self._spec.packages),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=descriptors,
            start_new_session=True,
        )

    def _introduction(self) -> dict[str, Any]:
        context = self._context
        return {
            "target": self._spec.target,
            "serial": self._spec.serial,
            "name": context.name,
            "config": config_to_json(context.config, with_defaults=True),
            "version": context.version,
            "version_path": str(context.version_path),
            "kind": context.kind,
            "device_id": context.device_id,
            "settings": dict(context.settings),
        }

    def _accept(self, inference: Inference) -> int:
        """Give the request a number on this link, and hear of its reader's moves."""
        self._numbers += 1
        number = self._numbers
        self._inferences[number] = inference

        def cancel() -> None:
            self._inferences.pop(number, None)
            self._send(Kind.CANCEL, number)

        inference.stream.connect(cancel, lambda count: self._send(Kind.TAKEN, (number, count)))
        return number

    def _send(self, kind: Kind, header: Any, payload: Sequence[Any] = ()) -> None:
        if self._link is not None:
            self._link.send(kind, header, payload)

    # -- what the process says ----------------------------------------------------------------

    def _receive(self, kind: int, header: Any, payload: memoryview) -> None:
        self._handlers[kind](header, payload)

    def _failed(self, header: Any, _: memoryview) -> None:
        if not self._ready.done():
            self._ready.set_exception(error_from_code(*header))

    def _executed(self, header: Any, payload: memoryview) -> None:
        *done, answers = header
        self._executions.done(*done)
        exchange, at = self._shared.exchange, 0
        for number, packed in answers:
            response, at = unpack_next_response(packed, payload, at, exchange)
            self._pass_on(number, response)

    def _response(self, header: Any, payload: memoryview) -> None:
        number, packed = header
        self._pass_on(number, unpack_response(packed, payload, self._shared.exchange))

    def _pass_on(self, number: int, response: InferenceResponse) -> None:
        # Unpacked in any case, so that the blocks of its tensors become free again.
        inference = self._inferences.get(number)
        if inference is None:  # it was cancelled; the process has not heard of it yet
            return
        if response.final:
            del self._inferences[number]
            inference.from_backend = response.error is not None
        inference.stream.send(response)

    def _end(self, number: Any, _: memoryview) -> None:
        if inference := self._inferences.pop(number, None):
            inference.stream.end()

    def _error(self, header: Any, _: memoryview) -> None:
        number, code, message = header
        if inference := self._inferences.pop(number, None):
            inference.fail(error_from_code(code, message), from_backend=True)

    def _told_health(self, healthy: Any, _: memoryview) -> None:
        health, self._health = self._health, None
        _settle(health, bool(healthy))

    def _told_metrics(self, numbers: Any, _: memoryview) -> None:
        self.metrics = numbers

    def _unhealthy(self, complaint: Any, _: memoryview) -> None:
        self._complaint = str(complaint)


def _signal_name(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:  # one of the many real-time signals
        return ""


def _settle(future: asyncio.Future[Any] | None, value: Any) -> None:
    if future is not None and not future.done():
        future.set_result(value)


def _log(header: Any, _: memoryview) -> None:
    """Write a record of the model process to the log, as from the line that it names."""
    level, name, path, line, text = header
    own = logging.getLogger(name)
    if own.isEnabledFor(level):
        own.handle(own.makeRecord(name, level, path, line, "%s", (text,), None))
