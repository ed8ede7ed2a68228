"""One `ModelStreamInfer` call: many requests, and their responses as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from penstock.core.errors import UnavailableError
from penstock.header_forward import HeaderForward
from penstock.rpc.context import RpcContext
from penstock.rpc.infer_message import InferMessage
from penstock.rpc.status import STOPPED
from penstock.rpc.stream_answer import StreamAnswer
from penstock.rpc.stream_writer import OpenAnswers
from penstock.server.server import InferenceServer


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
        self._context = context
        self._answers = OpenAnswers(server, context, forward)
        self._reading = True

    async def run(self, requests: AsyncIterator[InferMessage]) -> None:
        """Serve until the client has no more requests and has all its answers (GP-20).

        When the server stops, the client gets what is under way, and then the reason (G-35).
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write())
                stopped = await self._read(requests)
                self._reading = False
                self._answers.wake_writer()
            if stopped:
                raise UnavailableError(STOPPED)
        except ExceptionGroup as faults:
            raise faults.exceptions[0] from None
        finally:
            self._answers.close()

    async def _read(self, requests: AsyncIterator[InferMessage]) -> bool:
        """Take requests until the client has no more; whether the server stopped before that."""
        answers = self._answers
        stopping = asyncio.ensure_future(self._server.stopping())
        try:
            async with asyncio.timeout(None) as reading:
                stopping.add_done_callback(lambda ended: _interrupt(reading, ended))
                async for received in requests:
                    answers.accept(received)
                    while answers.crowded:
                        await answers.room()
        except TimeoutError:
            return True
        finally:
            stopping.cancel()
        return False

    async def _write(self) -> None:
        """Write as fast as the client reads, one message of an answer at a time."""
        answers = self._answers
        while self._reading or answers:
            await self._room_to_write()
            if answers.failure is not None:
                raise answers.failure
            if answers.queued:
                await self._say(answers.turn())
            else:
                await answers.word()

    async def _room_to_write(self) -> None:
        if self._answers.blocked:
            await self._context.writable()
            self._answers.unblock()

    async def _say(self, answer: StreamAnswer) -> None:
        message = self._answers.take(answer)
        if message is not None and not self._answers.write_nowait(message):
            await self._context.write(message)
        self._answers.said(answer)


def _interrupt(reading: asyncio.Timeout, stopping: asyncio.Future[None]) -> None:
    """Have the reading end now, unless it has ended by itself."""
    if not stopping.cancelled():
        with suppress(RuntimeError):
            reading.reschedule(asyncio.get_running_loop().time())
