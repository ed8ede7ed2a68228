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
from penstock.rpc.stream_writer import StreamWriter
from penstock.server.server import InferenceServer


class InferStream:
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
        self._writer = StreamWriter(server, context, forward)
        self._reading = True

    async def run(self, requests: AsyncIterator[InferMessage]) -> None:
        """Serve until the client has no more requests and has all its writer (GP-20).

        When the server stops, the client gets what is under way, and then the reason (G-35).
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write())
                stopped = await self._read(requests)
                self._reading = False
                self._writer.wake_writer()
            if stopped:
                raise UnavailableError(STOPPED)
        except ExceptionGroup as faults:
            raise faults.exceptions[0] from None
        finally:
            self._writer.close()

    async def _read(self, requests: AsyncIterator[InferMessage]) -> bool:
        """Take requests until the client has no more; whether the server stopped before that."""
        writer = self._writer
        stopping = asyncio.ensure_future(self._server.wait_stopping())
        try:
            async with asyncio.timeout(None) as reading:
                stopping.add_done_callback(lambda ended: _interrupt(reading, ended))
                async for received in requests:
                    writer.accept(received)
                    while writer.crowded:
                        await writer.wait_for_room()
        except TimeoutError:
            return True
        finally:
            stopping.cancel()
        return False

    async def _write(self) -> None:
        """Write as fast as the client reads, one message of an answer at a time."""
        writer = self._writer
        while self._reading or writer:
            await self._room_to_write()
            if writer.failure is not None:
                raise writer.failure
            if writer.queued:
                await self._write_answer(writer.next_answer())
            else:
                await writer.wait_for_message()

    async def _room_to_write(self) -> None:
        if self._writer.blocked:
            await self._context.writable()
            self._writer.unblock()

    async def _write_answer(self, answer: StreamAnswer) -> None:
        message = self._writer.take_message(answer)
        if message is not None and not self._writer.write_nowait(message):
            await self._context.write(message)
        self._writer.message_written(answer)


def _interrupt(reading: asyncio.Timeout, stopping: asyncio.Future[None]) -> None:
    """Have the reading end now, unless it has ended by itself."""
    if not stopping.cancelled():
        with suppress(RuntimeError):
            reading.reschedule(asyncio.get_running_loop().time())
