"""A bidirectional `ModelStreamInfer` call: many requests, with interleaved responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from penstock.core.errors import UnavailableError
from penstock.header_forward import HeaderForward
from penstock.rpc.context import RpcContext
from penstock.rpc.messages import InferMessage
from penstock.rpc.status import STOPPED
from penstock.rpc.stream_answer import StreamAnswer
from penstock.rpc.stream_writer import StreamWriter
from penstock.server.faces import Inference


class InferStream:
    """Serves the requests of one stream concurrently; responses interleave.

    Requests are admitted in the order of arrival. Responses of models that answer once are
    written in that order too (GP-16), one for each request (DC-04); those of decoupled models as
    they are made, round-robin over the models. An error is sent in-band, and the stream continues
    (GP-18), unless the client has asked for the first error of an admitted request to end the
    stream with its status (GP-19).

    A call has two tasks, whatever the number of requests: this one reads, another writes. Where
    the transport writes without a task, a response with none queued before it is written as soon
    as it is made, without waking the writing task.
    """

    def __init__(
        self, server: Inference, context: RpcContext, forward: HeaderForward | None = None
    ) -> None:
        self._server = server
        self._context = context
        self._writer = StreamWriter(server, context, forward)
        self._reading = True

    async def run(self, requests: AsyncIterator[InferMessage]) -> None:
        """Serve until the client has half-closed and all its requests are answered (GP-20).

        When the server stops, requests in flight are answered before the error status (G-35).
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
        """Read requests until the client half-closes; returns whether the server stopped before."""
        writer = self._writer
        stopping = asyncio.ensure_future(self._server.wait_stopping())
        try:
            async with asyncio.timeout(None) as reading:
                stopping.add_done_callback(lambda ended: _interrupt(reading, ended))
                async for received in requests:
                    writer.accept(received)
                    while writer.full:
                        await writer.wait_for_room()
        except TimeoutError:
            return True
        finally:
            stopping.cancel()
        return False

    async def _write(self) -> None:
        """Write messages under flow control, one of an answer at a time."""
        writer = self._writer
        while self._reading or writer:
            await self._wait_writable()
            if writer.failure is not None:
                raise writer.failure
            if writer.queued:
                await self._write_answer(writer.next_answer())
            else:
                await writer.wait_for_message()

    async def _wait_writable(self) -> None:
        if self._writer.blocked:
            await self._context.writable()
            self._writer.unblock()

    async def _write_answer(self, answer: StreamAnswer) -> None:
        message = self._writer.take_message(answer)
        if message is not None and not self._writer.write_nowait(message):
            await self._context.write(message)
        self._writer.message_written(answer)


def _interrupt(reading: asyncio.Timeout, stopping: asyncio.Future[None]) -> None:
    """Time the reading out now, unless it has ended."""
    if not stopping.cancelled():
        with suppress(RuntimeError):
            reading.reschedule(asyncio.get_running_loop().time())
