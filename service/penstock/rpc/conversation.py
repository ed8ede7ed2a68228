"""One `ModelStreamInfer` call: many requests, and their responses as they come (area B)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress

from penstock.core.errors import InferenceError, UnavailableError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.models.server import InferenceServer
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.codec import decode_request, encode_response, mark_final
from penstock.rpc.context import RpcContext
from penstock.rpc.parameters import wants_empty_final
from penstock.rpc.status import clean

_STRICT = "triton_grpc_error"
_STOPPED = "GRPC server is shutting down and has stopped accepting new requests."


class Conversation:
    """Answers every request of one stream at once; responses interleave.

    Requests are admitted in the order they came. Responses of models that answer once are
    written in that order too (GP-16); those of decoupled models as they are made. An error is
    told in-band, and the stream lives on (GP-18), unless the client asked for statuses: then the
    first error ends the stream, and with it everything that is under way (GP-19).
    """

    def __init__(self, server: InferenceServer, context: RpcContext) -> None:
        self._server = server
        self._context = context
        self._strict = context.metadata.get(_STRICT) == "true"
        self._writing = asyncio.Lock()
        self._former: asyncio.Task[None] | None = None
        self._open: set[ResponseStream] = set()

    async def run(self, requests: AsyncIterator[pb.ModelInferRequest]) -> None:
        """Serve until the client has no more requests and has all its answers (GP-20).

        When the server stops, the client gets what is under way, and then the reason (G-35).
        """
        try:
            async with asyncio.TaskGroup() as answers:
                stopped = await self._read(requests, answers)
            if stopped:
                raise UnavailableError(_STOPPED)
        except ExceptionGroup as faults:
            raise faults.exceptions[0] from None
        finally:  # a task that is cancelled before its first step closes nothing itself
            for stream in self._open:
                stream.close()

    async def _read(
        self, requests: AsyncIterator[pb.ModelInferRequest], answers: asyncio.TaskGroup
    ) -> bool:
        """Take requests until the client has no more; whether the server stopped before that."""
        stopping = asyncio.ensure_future(self._server.stopping())
        try:
            async with asyncio.timeout(None) as reading:
                stopping.add_done_callback(lambda ended: _interrupt(reading, ended))
                async for message in requests:
                    await self._accept(message, answers)
        except TimeoutError:
            return True
        finally:
            stopping.cancel()
        return False

    async def _accept(self, message: pb.ModelInferRequest, answers: asyncio.TaskGroup) -> None:
        try:
            decoupled = await self._server.decoupled(message.model_name, message.model_version)
            request = decode_request(message, self._context.deadline)
            stream = await self._server.infer(request)
        except InferenceError as error:
            if self._strict:
                raise
            refusal = pb.ModelStreamInferResponse(error_message=clean(error.message))
            refusal.infer_response.id = message.id
            self._former = answers.create_task(self._refuse(refusal, self._former))
            return
        self._open.add(stream)
        answer = _Answer(request, stream, wants_empty_final(message.parameters), self._strict)
        if decoupled:
            answers.create_task(self._relay(answer, None))
        else:
            self._former = answers.create_task(self._relay(answer, self._former))

    async def _refuse(
        self, refusal: pb.ModelStreamInferResponse, former: asyncio.Task[None] | None
    ) -> None:
        await _after(former)
        await self._write(refusal)

    async def _relay(self, answer: _Answer, former: asyncio.Task[None] | None) -> None:
        try:
            await _after(former)
            async with aclosing(answer.messages()) as messages:
                async for message in messages:
                    await self._write(message)
        finally:
            answer.stream.close()
            self._open.discard(answer.stream)

    async def _write(self, message: pb.ModelStreamInferResponse) -> None:
        async with self._writing:
            await self._context.write(message)


class _Answer:
    """The responses to one request, as messages."""

    def __init__(
        self, request: InferenceRequest, stream: ResponseStream, empty_final: bool, strict: bool
    ) -> None:
        self.stream = stream
        self._request = request
        self._empty_final = empty_final
        self._strict = strict

    async def messages(self) -> AsyncGenerator[pb.ModelStreamInferResponse, None]:
        """Every message that the client shall see; raises errors if they shall end the stream."""
        final = False
        try:
            async for response in self.stream:
                final = response.final
                yield self._message(response)
        except InferenceError as error:
            if self._strict:
                raise
            yield self._message(InferenceResponse(error=error, final=True))
            return
        if not final and self._empty_final:
            yield self._bare(final=True)

    def _message(self, response: InferenceResponse) -> pb.ModelStreamInferResponse:
        if response.error is not None:
            if self._strict:
                raise response.error
            message = self._bare(response.final)
            message.error_message = clean(response.error.message)
            return message
        reply = encode_response(self._request, self.stream.model_version, response)
        mark_final(reply, response.final)
        return pb.ModelStreamInferResponse(infer_response=reply)

    def _bare(self, final: bool) -> pb.ModelStreamInferResponse:
        """A message that only says whose it is, and whether it is the last."""
        reply = pb.ModelInferResponse(model_name=self._request.model_name, id=self._request.id)
        mark_final(reply, final)
        return pb.ModelStreamInferResponse(infer_response=reply)


async def _after(former: asyncio.Task[None] | None) -> None:
    """Wait for the answer before this one; its failure is not ours."""
    if former is not None and not former.done():
        await asyncio.wait([former])


def _interrupt(reading: asyncio.Timeout, stopping: asyncio.Future[None]) -> None:
    """Have the reading end now, unless it has ended by itself."""
    if not stopping.cancelled():
        with suppress(RuntimeError):
            reading.reschedule(asyncio.get_running_loop().time())
