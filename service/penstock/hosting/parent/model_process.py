"""One model process, from its start to its end, and the requests that it is answering."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from penstock.core.backend import InstanceContext
from penstock.core.call_chain import Caller
from penstock.core.config import config_to_json
from penstock.core.errors import InferenceError, UnavailableError, error_from_code
from penstock.hosting.link.arena import create
from penstock.hosting.link.link import Link
from penstock.hosting.link.memory import ARENA_SIZE, SharedMemory
from penstock.hosting.link.messages import Kind
from penstock.hosting.link.region_sharing import Lender
from penstock.hosting.parent.child import Child, ProcessSpec
from penstock.hosting.parent.executions import Executions
from penstock.hosting.parent.open_requests import OpenRequests
from penstock.hosting.parent.services import ModelServices, ServedCalls
from penstock.inflight.inference import Inference
from penstock.system.reaper import Reaper

logger = logging.getLogger(__name__)

_PROBE_TIMEOUT = 5.0


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
        self.caller = Caller(context.name)
        self._spec = spec
        self._context = context
        self._reaper = reaper
        self._loop = asyncio.get_running_loop()
        self._child: Child | None = None
        self._link: Link | None = None
        self._memory: SharedMemory | None = None
        self._requests: OpenRequests
        self._calls: ServedCalls | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._health: asyncio.Future[bool] | None = None
        self._complaint = ""
        self._batches = 0
        self._executions = Executions(
            serial=spec.serial,
            ahead=spec.ahead,
            limit=spec.execution_timeout,
            on_late=self._late,
        )
        self._services = services
        self._handlers: dict[int, Callable[[Any, memoryview], None]] = {
            Kind.READY: lambda _, __: _settle(self._ready, None),
            Kind.FAILED: self._failed,
            Kind.DONE: lambda header, _: self._done(header),
            Kind.EXECUTED: self._executed,
            Kind.HEALTH: self._told_health,
            Kind.METRICS: self._told_metrics,
            Kind.UNHEALTHY: self._unhealthy,
            Kind.LOG: _log,
        }

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def blocks(self) -> int:
        """Blocks of shared memory that the process may still look at."""
        return 0 if self._memory is None else self._memory.used

    async def open(self) -> None:
        """Start the process and wait until its model is loaded."""
        await self._start()
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
        sequences = self._context.config.sequence_batching
        lender = Lender(
            partial(self._send, Kind.REGION),
            partial(self._send, Kind.REGION_GONE),
            repeats=sequences is not None and sequences.iterative_sequence,
        )
        memory = SharedMemory(out=os.dup(inputs), into=os.dup(outputs), lender=lender)
        self._memory = memory
        self._handlers[Kind.REGION_MAPPED] = lambda number, _: lender.accepted(number)
        try:
            descriptors = theirs.fileno(), inputs, outputs
            self._child = await Child.start(self._spec, self._reaper, *descriptors)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(inputs)
            os.close(outputs)
        self._listen(memory)
        _, self._link = await self._loop.create_unix_connection(
            lambda: Link(self._receive, lambda: _settle(self._lost, None), self._asking), sock=ours
        )
        memory.open(lambda freed: self._send(Kind.FREE, freed))

    def _listen(self, memory: SharedMemory) -> None:
        """Know whom to tell what the process says of requests, its own among them."""
        requests = self._requests = OpenRequests(memory, self._send)
        self._handlers |= {
            Kind.RESPONSE: requests.response,
            Kind.RESPONSES: requests.responses,
            Kind.END: requests.end,
            Kind.ERROR: requests.error,
            Kind.RESCHEDULE: requests.reschedule,
            Kind.FREE: lambda header, _: memory.free(header),
        }
        if self._services is not None:
            executing, config = self._executions, self._context.config
            self._calls = ServedCalls(
                self._services,
                self.caller,
                self.pid,
                memory,
                self._send,
                lambda: executing.current,
                decoupled=config.decoupled,
            )
            self._handlers |= self._calls.handlers

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        """Send a batch; `done` is called when the process may have another."""
        self._executions.sent(self._submit(batch), batch, done)

    def repeat(self, batch: Sequence[Inference]) -> None:
        """Send a batch that the process before this one was given, but has not begun.

        So a request is executed once, or not at all (which its client is told).
        """
        self._executions.repeated(self._submit(batch), batch)

    def _submit(self, batch: Sequence[Inference]) -> int:
        self._batches += 1
        headers, payload = self._requests.pack(batch)
        assert self._link is not None
        # While it waits for another model, word of what comes after would wake it for nothing.
        say = self._link.hold if len(self._executions) else self._link.send
        say(Kind.EXECUTE, (self._batches, headers), payload)
        return self._batches

    def _asking(self) -> bool:
        """Whether the process waits for an answer of another model."""
        return bool(self._calls)

    def _late(self) -> None:
        """An execution has had its time: end the process, which is seen as any other end."""
        assert self._child is not None
        limit = self._spec.execution_timeout
        self._complaint = f"an execution took longer than its limit of {limit:g} s"
        self._child.strike()

    @property
    def open_requests(self) -> Iterable[Inference]:
        """What was sent and is not answered in full."""
        return self._requests.open

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
        """Wait for the end of the process or of its link; how it ended, as a verb phrase."""
        assert self._child is not None
        ended = asyncio.ensure_future(self._child.ended())
        try:
            await asyncio.wait([self._lost, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if self._complaint:
            return f"was stopped since {self._complaint}"
        return await self._child.fate()

    def not_begun(self) -> list[Sequence[Inference]]:
        """The batches that were sent ahead, and that a process that died has not executed."""
        assert self._memory is not None
        batches = self._executions.not_begun(self._memory.begun)
        for batch in batches:
            self._requests.release(batch)
        return batches

    def fail_all(self, error: InferenceError) -> None:
        """Answer everything still open with an error."""
        self._requests.fail_all(error)
        self._executions.clear()
        _settle(self._health, False)
        if self._calls is not None:
            self._calls.close()

    async def stop(self) -> None:
        """Let the backend finalize, then see that the process is gone."""
        assert self._link is not None
        assert self._child is not None
        self.fail_all(UnavailableError(f"model '{self._context.config.name}' is being unloaded"))
        self._link.send(Kind.FINALIZE, None)
        try:
            await asyncio.wait_for(self._child.ended(), self._spec.stop_timeout)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self._child.abandon()
            raise
        await self.kill()

    async def kill(self) -> None:
        """End the process and everything that it has started."""
        if self._calls is not None:
            self._calls.close()
        if self._link is not None:
            self._link.close()
        try:
            if self._child is not None:
                await self._child.kill()
        finally:
            if self._memory is not None:  # to the last the process may write to what was lent
                self._memory.close()

    def _introduction(self) -> dict[str, Any]:
        context = self._context
        return {
            "target": self._spec.target,
            "serial": self._spec.serial,
            "window": (self._spec.window.responses, self._spec.window.size),
            "name": context.name,
            "config": config_to_json(context.config, with_defaults=True),
            "version": context.version,
            "version_path": str(context.version_path),
            "kind": context.kind,
            "device_id": context.device_id,
            "settings": dict(context.settings),
            "host_policy": context.host_policy,
            "placement": asdict(context.placement),
            "passive": context.passive,
            "profiles": context.profiles,
            "secondary_devices": context.secondary_devices,
        }

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
        self._done(done)
        self._requests.responses(answers, payload)

    def _done(self, header: Sequence[Any]) -> None:
        assert self._link is not None
        self._link.release()
        self._executions.done(*header)

    def _told_health(self, healthy: Any, _: memoryview) -> None:
        health, self._health = self._health, None
        _settle(health, bool(healthy))

    def _told_metrics(self, numbers: Any, _: memoryview) -> None:
        self.metrics = numbers

    def _unhealthy(self, complaint: Any, _: memoryview) -> None:
        self._complaint = str(complaint)


def _settle(future: asyncio.Future[Any] | None, value: Any) -> None:
    if future is not None and not future.done():
        future.set_result(value)


def _log(header: Any, _: memoryview) -> None:
    """Write a record of the model process to the log, as from the line that it names."""
    level, name, path, line, text = header
    own = logging.getLogger(name)
    if own.isEnabledFor(level):
        own.handle(own.makeRecord(name, level, path, line, "%s", (text,), None))
