"""The model process: builds the backend, answers the link, dies with the server."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from penstock.core.allocator import tune_allocator
from penstock.core.backend import Backend, InstanceContext, Outcome
from penstock.core.config import config_from_json
from penstock.core.errors import InferenceError, InternalError
from penstock.core.relay import as_inference_error, deliver
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.hosting.link import Link
from penstock.hosting.memory import SharedMemory
from penstock.hosting.messages import WINDOW, Kind, pack_response, unpack_request
from penstock.hosting.parent import die_with_parent

logger = logging.getLogger(__name__)

_WATCH_INTERVAL = 0.5
"""Seconds between looks at the backend's health and numbers."""


def run(descriptor: int, inputs: int, outputs: int) -> None:
    """Serve the link on this socket until the server ends it; the arenas come as descriptors."""
    die_with_parent()
    tune_allocator()
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)  # or an engine's children would keep it open
    asyncio.run(_serve(connection, SharedMemory(out=outputs, into=inputs)))


async def _serve(connection: socket.socket, memory: SharedMemory) -> None:
    host = Host(memory)
    loop = asyncio.get_running_loop()
    link: Link
    _, link = await loop.create_unix_connection(
        lambda: Link(host.receive, _end_group), sock=connection
    )
    logging.basicConfig(level=logging.INFO, handlers=[_LinkHandler(link)])
    await host.serve(link)


class Host:
    """One backend object and the requests that it is answering."""

    def __init__(self, memory: SharedMemory) -> None:
        self.memory = memory
        self._replies: dict[int, Reply] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._finished = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._backend: Backend
        self._turn: AbstractAsyncContextManager[None] = nullcontext()
        self._link: Link
        self._handlers: dict[int, Callable[[Any, memoryview], None]] = {
            Kind.INITIALIZE: lambda header, _: self._start(self._initialize(header)),
            Kind.EXECUTE: self._execute_batch,
            Kind.TAKEN: self._taken,
            Kind.CANCEL: self._cancel,
            Kind.PROBE: lambda _, __: self._start(self._probe()),
            Kind.FINALIZE: lambda _, __: self._finished.set(),
            Kind.FREE: lambda header, _: self.memory.free(header),
        }

    async def serve(self, link: Link) -> None:
        """Answer the link until it says that this is the end."""
        self._link = link
        self.memory.open(lambda freed: link.send(Kind.FREE, freed))
        await self._finished.wait()
        for reply in list(self._replies.values()):
            reply.cancel()
        await self._finalize()
        link.flush()

    def receive(self, kind: int, header: Any, payload: memoryview) -> None:
        """Handle one message."""
        self._handlers[kind](header, payload)

    def forget(self, number: int) -> None:
        """A request has been answered."""
        self._replies.pop(number, None)

    def send(self, kind: Kind, header: Any, payload: Sequence[Any] = ()) -> None:
        """Say something to the server."""
        self._link.send(kind, header, payload)

    # -- messages -----------------------------------------------------------------------------

    async def _initialize(self, header: dict[str, Any]) -> None:
        try:
            if header["serial"]:  # batches may be sent ahead of their turn
                self._turn = asyncio.Lock()
            self._backend = _load(header["target"])
            await self._backend.initialize(self._context(header))
        except (Exception, asyncio.CancelledError) as error:  # a backend may raise anything
            if not isinstance(error, InferenceError):
                logger.exception("initializing '%s' failed", header["name"])
            failure = as_inference_error(error)
            self.send(Kind.FAILED, (failure.code, failure.message))
            return
        self.send(Kind.READY, None)
        self._start(self._watch())

    def _execute_batch(self, header: Any, payload: memoryview) -> None:
        number, packed = header
        requests: list[InferenceRequest] = []
        replies: list[Reply] = []
        at = 0
        for one in packed:
            request_number, request, at = unpack_request(one, payload, at, self.memory.exchange)
            requests.append(request)
            reply = self._replies[request_number] = Reply(self, request_number)
            replies.append(reply)
        self._start(self._execute(number, requests, replies))

    def _taken(self, header: Any, _: memoryview) -> None:
        number, count = header
        if reply := self._replies.get(number):
            reply.taken(count)

    def _cancel(self, number: Any, _: memoryview) -> None:
        if reply := self._replies.pop(number, None):
            reply.cancel()

    async def _probe(self) -> None:
        self.send(Kind.HEALTH, await self._healthy())

    # -- work ---------------------------------------------------------------------------------

    async def _execute(
        self, number: int, requests: list[InferenceRequest], replies: list[Reply]
    ) -> None:
        async with self._turn:
            begun = time.monotonic_ns()
            outcomes = await self._outcomes(requests)
            done = time.monotonic_ns()
        self.send(Kind.DONE, (number, begun, begun, done))
        for reply, outcome in zip(replies, outcomes, strict=True):
            if task := deliver(outcome, reply.stream):
                self._own(task)

    async def _outcomes(self, requests: list[InferenceRequest]) -> Sequence[Outcome]:
        try:
            outcomes = list(await self._backend.execute(requests))
        except (Exception, asyncio.CancelledError) as error:  # a backend may raise anything
            return [as_inference_error(error)] * len(requests)
        if len(outcomes) != len(requests):
            count = f"{len(outcomes)} outcomes for {len(requests)} requests"
            return [InternalError(f"backend returned {count}")] * len(requests)
        return outcomes

    async def _watch(self) -> None:
        """Tell the backend's numbers when they change; end when it cannot go on."""
        shown: dict[str, float] | None = {}
        while await self._healthy():
            numbers = None if shown is None else self._numbers()
            if numbers is not None and numbers != shown:
                self.send(Kind.METRICS, numbers)
            shown = numbers
            await asyncio.sleep(_WATCH_INTERVAL)
        self.send(Kind.UNHEALTHY, "its engine reports that it is not healthy")
        self._link.close()

    def _numbers(self) -> dict[str, float] | None:
        """The backend's numbers; `None` when it fails, after which it is not asked again."""
        try:
            return {name: float(value) for name, value in self._backend.metrics().items()}
        except Exception:  # a backend may raise anything
            logger.exception("asking the backend for its numbers failed")
            return None

    async def _healthy(self) -> bool:
        try:
            return await self._backend.healthy()
        except Exception:  # a backend that cannot even say so is not healthy
            logger.exception("asking the backend for its health failed")
            return False

    async def _finalize(self) -> None:
        backend = getattr(self, "_backend", None)
        if backend is None:
            return
        try:
            await backend.finalize()
        except Exception:  # a backend may raise anything; the process ends all the same
            logger.exception("finalizing failed")
            await asyncio.sleep(0)  # lets the record out

    def _context(self, header: dict[str, Any]) -> InstanceContext:
        return InstanceContext(
            name=header["name"],
            config=config_from_json(header["config"]),
            version=header["version"],
            version_path=Path(header["version_path"]),
            run=self._run,
            kind=header["kind"],
            device_id=header["device_id"],
            settings=header["settings"],
        )

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(function, *args))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._own(asyncio.get_running_loop().create_task(work))

    def _own(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Reply:
    """The responses to one request, sent as far as the reader on the other side has room."""

    def __init__(self, host: Host, number: int) -> None:
        self.stream = ResponseStream()
        self._host = host
        self._number = number
        self._room = WINDOW
        self._moving = False
        self.stream.watch(self._move)

    def taken(self, count: int) -> None:
        """The reader has taken `count` responses."""
        self._room += count
        self._move()

    def cancel(self) -> None:
        """The reader has left: nothing more is said about this request."""
        self._host.forget(self._number)
        self._room = -1
        self.stream.close()

    def _move(self) -> None:
        if self._moving or self._room < 0:  # called back from below, or all is said
            return
        self._moving = True
        try:
            self._send_ready()
        except Exception as error:  # a response may be unfit to travel in any way
            self.cancel()
            self._end(as_inference_error(error))
        self._moving = False

    def _send_ready(self) -> None:
        while ready := self.stream.take(self._room):
            for response in ready:
                self._send(response)
        if self._room >= 0 and self.stream.exhausted:
            self._end(self.stream.error)

    def _send(self, response: InferenceResponse) -> None:
        self._room -= 1
        header, payload = pack_response(response, self._host.memory.exchange)
        self._host.send(Kind.RESPONSE, (self._number, header), payload)
        if response.final:
            self._host.forget(self._number)
            self._room = -1

    def _end(self, error: InferenceError | None) -> None:
        self._host.forget(self._number)
        self._room = -1
        if error is None:
            self._host.send(Kind.END, self._number)
        else:
            self._host.send(Kind.ERROR, (self._number, error.code, error.message))


class _LinkHandler(logging.Handler):
    """Sends log records to the server, whose log they join."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))  # the server adds the rest
        self._link = link
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            header = record.levelno, record.name, record.pathname, record.lineno, text
            self._loop.call_soon_threadsafe(self._link.send, Kind.LOG, header)
        except RuntimeError:  # the loop is closed: nobody listens any more
            return


def _load(target: str) -> Backend:
    module, _, attribute = target.partition(":")
    backend: Backend = getattr(importlib.import_module(module), attribute)()
    return backend


def _end_group() -> None:
    """The link is gone, so the server is: end, and take along what the engine has started."""
    os.killpg(os.getpgrp(), signal.SIGKILL)
