"""One `ModelStreamInfer` call: many requests, and their responses as they come (area B)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

from penstock.core.errors import DeadlineExceededError, InferenceError, UnavailableError
from penstock.core.header_forward import HeaderForward
from penstock.models.server import InferenceServer
from penstock.rpc.codec import decode_request
from penstock.rpc.context import RpcContext
from penstock.rpc.fair_queue import FairQueue
from penstock.rpc.forward import forwarded
from penstock.rpc.infer_message import InferMessage
from penstock.rpc.parameters import wants_empty_final
from penstock.rpc.status import STOPPED
from penstock.rpc.stream_answer import StreamAnswer
from penstock.rpc.stream_replies import refusal

MOST_OPEN = 4096
"""Requests of one stream that are being answered; while there are more, none is read."""

MOST_BYTES = 64 << 20
"""The same for the bytes of their tensors."""

_FAIL_FAST = "triton_grpc_error"


class Conversation:
    """Answers every request of one stream at once; responses interleave.

    Requests are admitted in the order they came. Responses of models that answer once are
    written in that order too (GP-16); those of decoupled models as they are made, the models in
    turn. An error is told in-band, and the stream lives on (GP-18), unless the client has asked
    for the first one to end the stream with its status (GP-19).

    There are two tasks a call, whatever the number of requests: this one reads, another writes.
    Where the transport takes a message without a task, one that nothing stands before is written
    as soon as it comes, without waking the writer.
    """

    def __init__(
        self, server: InferenceServer, context: RpcContext, forward: HeaderForward | None = None
    ) -> None:
        self._server = server
        self._forward = forward
        self._context = context
        self._deadline = context.deadline
        self._fail_fast = context.metadata.get(_FAIL_FAST) == "true"
        self._open: set[StreamAnswer] = set()
        self._open_bytes = 0
        self._ordered: deque[StreamAnswer] = deque()
        self._ready: FairQueue[StreamAnswer] = FairQueue()
        self._direct = context.writes_at_once
        self._reading = True
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._failure: Exception | None = None

    async def run(self, requests: AsyncIterator[InferMessage]) -> None:
        """Serve until the client has no more requests and has all its answers (GP-20).

        When the server stops, the client gets what is under way, and then the reason (G-35).
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write())
                stopped = await self._read(requests)
                self._reading = False
                _wake(self._writer)
            if stopped:
                raise UnavailableError(STOPPED)
        except ExceptionGroup as faults:
            raise faults.exceptions[0] from None
        finally:
            for answer in self._open:
                answer.close()

    # -- requests -----------------------------------------------------------------------------

    async def _read(self, requests: AsyncIterator[InferMessage]) -> bool:
        """Take requests until the client has no more; whether the server stopped before that."""
        stopping = asyncio.ensure_future(self._server.stopping())
        try:
            async with asyncio.timeout(None) as reading:
                stopping.add_done_callback(lambda ended: _interrupt(reading, ended))
                async for received in requests:
                    self._accept(received)
                    await self._room()
        except TimeoutError:
            return True
        finally:
            stopping.cancel()
        return False

    def _accept(self, received: InferMessage) -> None:
        message = received.head
        name = message.model_name
        answer = StreamAnswer(name)
        stream = None
        try:
            model = self._server.find(name, message.model_version)
            headers = forwarded(self._forward, self._context)
            regions = self._server.regions
            request = decode_request(received, self._deadline, regions, headers)
            answer.on_close = partial(regions.release, request)
            stream = model.infer(request)
            empty_final = wants_empty_final(message.parameters)
            answer.ordered = not model.decoupled
            answer.connect(request, stream, empty_final)
        except InferenceError as error:
            answer.refuse(refusal(message, error), error)
        self._open.add(answer)
        self._open_bytes += answer.size
        if answer.ordered:
            self._ordered.append(answer)
        if stream is None:
            self._offer(answer)
        else:
            stream.watch(partial(self._offer, answer))

    async def _room(self) -> None:
        """Wait while too much is being answered: the client's next requests stay with it."""
        while len(self._open) >= MOST_OPEN or self._open_bytes >= MOST_BYTES:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader

    # -- responses ----------------------------------------------------------------------------

    def _offer(self, answer: StreamAnswer) -> None:
        """An answer may have something to say: it gets its turn, unless others come first."""
        if answer.queued or answer.done or self._failure is not None:
            return
        if answer.ordered and answer is not self._ordered[0]:
            return
        if self._direct and not self._ready:
            self._say_at_once(answer)
        else:
            self._queue(answer)

    def _queue(self, answer: StreamAnswer) -> None:
        answer.queued = True
        self._ready.push(answer.model, answer)
        _wake(self._writer)

    def _say_at_once(self, answer: StreamAnswer) -> None:
        """Write the next message now; what follows is the writer's."""
        try:
            message = self._next(answer)
        except Exception as error:  # a fault of ours ends this call, and not who sent the response
            self._fail(error)
            return
        if message is not None and not self._context.write_nowait(message):
            self._direct = False
            _wake(self._writer)
        self._go_on(answer)

    def _next(self, answer: StreamAnswer) -> bytes | None:
        """The next message; what taking it brings from below waits until that is written."""
        answer.queued = True
        message = answer.next()
        answer.queued = False
        if answer.error is not None and (self._fail_fast or self._late(answer.error)):
            raise answer.error
        return message

    def _late(self, error: InferenceError) -> bool:
        """Whether the call has had its time, so that nobody hears what is told in-band."""
        return self._deadline is not None and isinstance(error, DeadlineExceededError)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        _wake(self._writer)

    def _go_on(self, answer: StreamAnswer) -> None:
        """Something was said: it was the last word, or there is more."""
        if answer.done:
            self._close(answer)
        elif answer.ready and not answer.queued:
            self._queue(answer)

    async def _write(self) -> None:
        """Write as fast as the client reads, one message of an answer at a time."""
        while self._reading or self._open:
            await self._room_to_write()
            if self._failure is not None:
                raise self._failure
            if self._ready:
                await self._say(self._ready.pop())
                continue
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer

    async def _room_to_write(self) -> None:
        if self._context.writes_at_once and not self._direct:
            await self._context.writable()
            self._direct = True

    async def _say(self, answer: StreamAnswer) -> None:
        context = self._context
        message = self._next(answer)
        if message is not None and context.writes_at_once:
            self._direct = context.write_nowait(message)
        elif message is not None:
            await context.write(message)
        self._go_on(answer)

    def _close(self, answer: StreamAnswer) -> None:
        """All is said about one request, so the one that waits for it may speak."""
        answer.close()
        self._open.discard(answer)
        self._open_bytes -= answer.size
        _wake(self._reader)
        if not self._open:
            _wake(self._writer)  # for whom this may be the end
        if answer.ordered:
            self._ordered.popleft()
            if self._ordered and self._ordered[0].ready:
                self._queue(self._ordered[0])


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _interrupt(reading: asyncio.Timeout, stopping: asyncio.Future[None]) -> None:
    """Have the reading end now, unless it has ended by itself."""
    if not stopping.cancelled():
        with suppress(RuntimeError):
            reading.reschedule(asyncio.get_running_loop().time())
