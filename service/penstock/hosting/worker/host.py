"""The main loop of a model process: loads the backend, serves the link, dies with the server."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any

from penstock.core.application import DESCRIBE, SPEAKS, BackendApplication, told_facts
from penstock.core.backend import Backend, Controllable, Outcome
from penstock.core.buffer import Buffer
from penstock.core.delivery import execute_batch
from penstock.core.engine_facts import FACTS
from penstock.core.errors import InferenceError, InternalError, as_inference_error, no_commands
from penstock.core.flow_control import Window
from penstock.core.log.log_fields import fields_of
from penstock.core.placement import Placement
from penstock.core.request import InferenceRequest
from penstock.hosting.link.introduction import Introduction, instance_context
from penstock.hosting.link.link import Handler, Link, Pulse
from penstock.hosting.link.memory import SharedMemory
from penstock.hosting.link.messages import (
    LONGEST_TEXT,
    RETIRE,
    Command,
    Commanded,
    Done,
    Exchange,
    Execute,
    Kind,
    PackedResponse,
    Taken,
    pack_error,
    unpack_exchange,
    unpack_request,
)
from penstock.hosting.link.region_sharing import Borrower, Offer
from penstock.hosting.link.response_sender import EndKinds, ResponseSender, ResponseSenders
from penstock.hosting.worker.health import HealthMonitor
from penstock.system import event_loop
from penstock.system.allocator import free_caches, return_freed_memory, tune_allocator
from penstock.system.process_control import die_with_parent
from penstock.system.reap import kill_group

logger = logging.getLogger(__name__)

_END_KINDS = EndKinds(Kind.END, Kind.ERROR)


def run(descriptor: int, inputs: int, outputs: int) -> None:
    """Serve the link on this socket until the server ends it; the arenas come as descriptors."""
    die_with_parent()
    tune_allocator()
    connection = socket.socket(fileno=descriptor)
    for number in (descriptor, inputs, outputs):
        os.set_inheritable(number, False)  # or an engine's children would keep it open
    borrower = Borrower()
    memory = SharedMemory(out=outputs, into=inputs, borrower=borrower)
    event_loop.run(_serve(connection, Host(memory, borrower)))


async def _serve(connection: socket.socket, host: Host) -> None:
    loop = asyncio.get_running_loop()
    link: Link
    _, link = await loop.create_unix_connection(
        lambda: Link(host.handlers, _end_group, on_unsent=host.unsent), sock=connection
    )
    logging.basicConfig(level=logging.INFO, handlers=[LinkHandler(link)])
    await host.serve(link)


Batch = list[tuple[ResponseSender, InferenceRequest]]


class Host:
    """One backend object and its requests in flight: handles the messages of the link."""

    def __init__(self, memory: SharedMemory, borrower: Borrower) -> None:
        self.memory = memory
        self._borrower = borrower
        self._replies: ResponseSenders
        self._tasks: set[asyncio.Task[None]] = set()
        self._finished = asyncio.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._backend: Backend
        self._controllable: Controllable | None = None
        self._application: BackendApplication
        self._name = self._model = ""
        self._usage = False
        self._health: HealthMonitor
        self._pulse: Pulse
        self._turn: AbstractAsyncContextManager[None] = nullcontext()
        self._link: Link
        self.handlers: dict[int, Handler] = {
            Kind.INITIALIZE: lambda header, _: self._start(self._initialize(header)),
            Kind.EXECUTE: self._execute_batch,
            Kind.EXCHANGE: self._exchange,
            Kind.TAKEN: self._taken,
            Kind.CANCEL: lambda header, _: self._replies.cancel(*header),
            Kind.STOP: lambda number, _: self._replies.stop(number),
            Kind.COMMAND: lambda header, _: self._start(self._command(header)),
            Kind.SHRINK: lambda *_: self._start(self._run(free_caches)),
            Kind.CONTROLLED: lambda *_: None,  # the server has taken note of RETIRE
            Kind.FINALIZE: lambda _, __: self._finished.set(),
            Kind.FREE: lambda header, _: self.memory.free(header),
            Kind.REGION_GONE: lambda number, _: self._borrower.give_back(number),
        }

    async def serve(self, link: Link) -> None:
        """Serve the link until the server finalizes this process."""
        self._link = link
        self._replies = ResponseSenders(_END_KINDS, self._respond, link.send, self.memory)
        self.memory.open(lambda freed: link.send(Kind.FREE, freed))
        await self._finished.wait()
        self._replies.close()
        await self._finalize()
        link.flush()

    # -- messages -----------------------------------------------------------------------------

    async def _initialize(self, header: Introduction) -> None:
        self._name, self._usage = header["name"], header["usage"]
        self._model = header["config"]["name"]
        loop = asyncio.get_running_loop()
        self._pulse = Pulse(
            header["pulse"],
            lambda: loop.call_soon_threadsafe(self._on_probe),
            lambda *offer: loop.call_soon_threadsafe(self._borrow, *offer),
        )
        try:
            if header["serial"]:  # batches may be sent ahead of their turn
                self._turn = asyncio.Lock()
            Placement(**header["placement"]).apply()
            backend = self._backend = _load(header["target"])
            self._controllable = backend if isinstance(backend, Controllable) else None
            self._health = HealthMonitor(backend, self._link.send)
            self._replies.window = Window(*header["window"])
            await backend.initialize(instance_context(header, self._run))
            self._application = BackendApplication(backend, self._model)
            await self._application.start()
            return_freed_memory()
        except (Exception, asyncio.CancelledError) as error:  # a backend may raise anything
            if not isinstance(error, InferenceError):
                logger.exception("initializing '%s' failed", header["name"])
            self._link.send(Kind.FAILED, pack_error(as_inference_error(error)))
            return
        # While an execution does not return to the loop, no probe would be answered.
        self._link.send(Kind.READY, not header["serial"])
        self._start(self._watch())

    async def _watch(self) -> None:
        await self._health.watch()
        if self._health.unloads:
            self._link.send(Kind.CONTROL, (0, RETIRE, [self._model]))
            return  # until then, the backend says itself that it cannot serve
        self._link.close()

    def _execute_batch(self, header: Execute, payload: memoryview) -> None:
        number, packed = header
        batch: Batch = []
        at = 0
        for one in packed:
            request_number, request, at = unpack_request(one, payload, at, self.memory.codec)
            scope = request.scope
            reply = self._replies.open(request_number, request.output_places, scope.timeline)
            if self._usage:
                scope.report_usage = partial(self._report_usage, request_number)
            batch.append((reply, request))
        self._start(self._execute(number, batch))

    def _exchange(self, header: Exchange, payload: memoryview) -> None:
        number, request = unpack_exchange(header, payload)
        scope = request.scope
        reply = self._replies.open_exchange(number, self._link.add, scope.timeline)
        if self._usage:
            scope.report_usage = partial(self._report_usage, number)
        reply.connect(self._application.answer(request))

    def _report_usage(self, number: int, prompt: int, cached: int, generated: int) -> None:
        self._link.send(Kind.USAGE, (number, prompt, cached, generated))

    def _borrow(self, offer: Offer, descriptor: int) -> None:
        if (number := self._borrower.take(offer, descriptor)) is not None:
            self._link.send(Kind.REGION_MAPPED, number)

    def _taken(self, header: Taken, _: memoryview) -> None:
        for number, count in header:
            self._replies.taken(number, count)

    def _on_probe(self) -> None:
        self._start(self._probe())

    async def _probe(self) -> None:
        self._pulse.answer(ready=await self._health.ready())

    def _respond(self, number: int, packed: PackedResponse, payload: list[Buffer]) -> None:
        self._link.add(Kind.RESPONSES, (number, packed), payload)

    def unsent(self, kind: int, header: Any, reason: ValueError) -> None:
        """Something is too large for the link: whoever waits for it gets an error instead."""
        error = InternalError(str(reason))
        if kind in (Kind.RESPONSES, Kind.PARTS):
            self._replies.cancel(header[0])
            self._link.send(Kind.ERROR, (header[0], *pack_error(error)))
        elif kind == Kind.COMMANDED:
            self._link.send(Kind.COMMANDED, (header[0], "", pack_error(error)))
        else:
            logger.error("%s is lost: %s", Kind(kind).name, reason)

    # -- work ---------------------------------------------------------------------------------

    async def _execute(self, number: int, batch: Batch) -> None:
        async with self._turn:
            self.memory.begin(number)
            begun = time.monotonic_ns()
            # While it waited for its turn, some of its clients may have left.
            batch = [(reply, request) for reply, request in batch if not reply.done]
            outcomes = await self._outcomes(batch)
            done = time.monotonic_ns()
        header: Done = number, begun, begun, done, 0
        self._link.send(Kind.DONE, header)
        for (reply, _), outcome in zip(batch, outcomes, strict=True):
            if task := reply.answer(outcome):
                self._own(task)

    async def _outcomes(self, batch: Batch) -> Sequence[Outcome]:
        if not batch:
            return ()
        requests = [request for _, request in batch]
        return await execute_batch(self._backend, requests, self._name)

    async def _command(self, header: Command) -> None:
        self._link.send(Kind.COMMANDED, await carried_out(self._control, header))

    async def _control(self, action: str, arguments: Mapping[str, Any]) -> Any:
        if action == DESCRIBE:
            return await self._application.description()
        if action == SPEAKS:
            return self._application.opened
        if action == FACTS:
            return told_facts(self._backend)
        if self._controllable is None:
            raise no_commands(action)
        return await self._controllable.control(action, arguments)

    async def _finalize(self) -> None:
        backend = getattr(self, "_backend", None)
        if backend is None:
            return
        if hasattr(self, "_application"):
            await self._application.close()
        try:
            await backend.finalize()
        except Exception:  # a backend may raise anything; the process ends all the same
            logger.exception("finalizing failed")
            await asyncio.sleep(0)  # lets the record out

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(function, *args))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._own(asyncio.get_running_loop().create_task(work))

    def _own(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _load(target: str) -> Backend:
    module, _, attribute = target.partition(":")
    backend: Backend = getattr(importlib.import_module(module), attribute)()
    return backend


def _end_group() -> None:
    """The server is gone: kill this process group, with everything that the engine has started."""
    kill_group(os.getpgrp())


Control = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Carries out a command, by its action and arguments; may raise anything."""


async def carried_out(control: Control, command: Command) -> Commanded:
    """The reply to a command, once `control` has carried it out or refused it."""
    number, action, arguments = command
    try:
        value = await control(action, json.loads(arguments))
        return number, json.dumps(value), None
    except Exception as error:  # a backend may raise anything, or return what JSON has not
        return number, "", pack_error(as_inference_error(error))


class LinkHandler(logging.Handler):
    """Sends log records to the server, from any thread."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))  # the server adds the rest
        self._link = link
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            place = record.pathname, record.lineno
            header = record.levelno, record.name, *place, text[:LONGEST_TEXT], fields_of(record)
            self._loop.call_soon_threadsafe(self._link.send, Kind.LOG, header)
        except RuntimeError:  # the loop is closed: the process is ending
            return
