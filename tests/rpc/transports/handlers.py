"""Methods that a test calls over a real channel, and how it calls them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.message import Message

from penstock.core.errors import ExhaustedError, NotFoundError
from penstock.core.exit_deadline import ExitDeadline
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import Method, RpcContext, Service, StatusError
from penstock.rpc.server import OpenTransport
from penstock.rpc.status import StatusCode
from penstock.settings import GrpcSettings
from rpc.serving import Client

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
PATIENCE = 20.0
NAME = "test.Service"


class Handlers:
    """Methods that a test calls, and what they saw."""

    def __init__(self) -> None:
        self.contexts: list[RpcContext] = []
        self.cancelled = asyncio.Event()
        self.begun = asyncio.Event()
        self.written = 0

    def service(self) -> Service:
        request, response = pb.ModelInferRequest, pb.ModelInferResponse
        unary = [self.echo, self.refuse, self.fail, self.wait, self.annotate]
        unary += [self.refuse_exactly, self.have_no_room]
        streams = [self.echoes, self.flood, self.refuse_late, self.echo_at_once]
        kinds = (
            (False, False, unary),
            (True, False, [self.concatenate]),
            (False, True, [self.count_up]),
            (True, True, streams),
        )
        return Service(
            NAME,
            [
                Method(handler.__name__, request, response, handler, client, server, unbounded=True)
                for client, server, handlers in kinds
                for handler in handlers
            ],
        )

    async def echo(self, request: pb.ModelInferRequest, context: RpcContext) -> Message:
        self.contexts.append(context)
        return _echoed(request)

    async def refuse(self, request: pb.ModelInferRequest, _: RpcContext) -> Message:
        raise NotFoundError(request.id)

    async def have_no_room(self, _: pb.ModelInferRequest, __: RpcContext) -> Message:
        raise ExhaustedError("no room", retry_after=7)

    async def fail(self, _: pb.ModelInferRequest, __: RpcContext) -> Message:
        raise KeyError("a fault")

    async def wait(self, _: pb.ModelInferRequest, __: RpcContext) -> Message:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        raise AssertionError

    async def annotate(self, request: pb.ModelInferRequest, context: RpcContext) -> Message:
        """Metadata both ways; with an id, an error follows."""
        self.contexts.append(context)
        context.set_initial_metadata([("x-first", "1"), ("x-first", "2")])
        context.add_trailing_metadata([("x-last-bin", b"\x00\xff"), ("x-last", "3")])
        if request.id:
            raise NotFoundError(request.id)
        return pb.ModelInferResponse(id=context.peer)

    async def refuse_exactly(self, _: pb.ModelInferRequest, context: RpcContext) -> Message:
        context.add_trailing_metadata([("x-last", "4")])
        raise StatusError(StatusCode.OUT_OF_RANGE, "too far", b"\x08\x0b")

    async def count_up(self, request: pb.ModelInferRequest, context: RpcContext) -> None:
        for number in range(int(request.id)):
            await context.write(pb.ModelInferResponse(id=str(number)))

    async def concatenate(self, requests: AsyncIterator[Any], _: RpcContext) -> Message:
        return pb.ModelInferResponse(id="".join([request.id async for request in requests]))

    async def echo_at_once(self, requests: AsyncIterator[Any], context: RpcContext) -> None:
        async for request in requests:
            if not context.write_nowait(_echoed(request)):
                await context.writable()

    async def echoes(self, requests: AsyncIterator[Any], context: RpcContext) -> None:
        async for request in requests:
            await context.write(_echoed(request))

    async def flood(self, _: AsyncIterator[Any], context: RpcContext) -> None:
        try:
            while True:
                await context.write(pb.ModelInferResponse(raw_output_contents=[bytes(1000)]))
                self.written += 1
        finally:
            self.cancelled.set()

    async def refuse_late(self, requests: AsyncIterator[Any], context: RpcContext) -> None:
        async for request in requests:
            await context.write(_echoed(request))
            raise NotFoundError("enough")


def unary(client: Client, name: str, id: str = "", **options: Any) -> Any:
    return client.channel.unary_unary(
        f"/{NAME}/{name}",
        pb.ModelInferRequest.SerializeToString,
        pb.ModelInferResponse.FromString,
    )(pb.ModelInferRequest(id=id), **options)


def stream(client: Client, name: str) -> Any:
    return client.channel.stream_stream(
        f"/{NAME}/{name}",
        pb.ModelInferRequest.SerializeToString,
        pb.ModelInferResponse.FromString,
    )(None)


def fields(metadata: Any) -> list[tuple[str, str | bytes]]:
    """Metadata as a client of grpc gets it, as a list."""
    return list(metadata)


async def finish(call: Any) -> None:
    await call.done_writing()
    await call.read()


async def opened(serve: OpenTransport, settings: GrpcSettings) -> int:
    """Open and close an endpoint without services; its port."""
    async with serve([], settings, ExitDeadline(0)) as port:
        return port


def _echoed(request: pb.ModelInferRequest) -> Message:
    return pb.ModelInferResponse(id=request.id, raw_output_contents=request.raw_input_contents)
