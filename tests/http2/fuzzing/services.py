"""Methods for the fuzzer to call: all that a call can do, and nothing that takes time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import Method, Reply, RpcContext, Service, StatusError
from penstock.rpc.messages import InferMessage, parse_infer
from penstock.rpc.status import StatusCode

NAME = "fuzz.Fuzz"
_LIVE, _READY = pb.ServerLiveRequest, pb.ServerLiveResponse
_PIECE = bytes(4000)


@dataclass(slots=True)
class Produced:
    """Bytes of messages and metadata that the methods have asked to send."""

    size: int = 0

    def took(self, size: int) -> None:
        self.size += size


@dataclass(frozen=True, slots=True)
class Methods:
    """A unary echo, one that fails, one that waits, a chat, a flood, and inference's messages."""

    produced: Produced = field(default_factory=Produced)

    def service(self) -> Service:
        return Service(
            NAME,
            [
                Method("Echo", _LIVE, _READY, self.echo, parse=bytes, eager=True),
                Method("Fail", _LIVE, _READY, self.fail, eager=True),
                Method("Wait", _LIVE, _READY, self.wait, eager=True),
                Method("Later", _LIVE, _READY, self.later, parse=bytes),
                Method(
                    "Infer",
                    pb.ModelInferRequest,
                    pb.ModelInferResponse,
                    self.infer,
                    parse=parse_infer,
                    eager=True,
                ),
                Method(
                    "Chat",
                    _LIVE,
                    _READY,
                    self.chat,
                    client_streaming=True,
                    server_streaming=True,
                    parse=bytes,
                ),
                Method("Flood", _LIVE, _READY, self.flood, server_streaming=True, eager=True),
            ],
        )

    async def echo(self, request: bytes, context: RpcContext) -> Reply:
        metadata = context.metadata_fields
        kept = [pair for pair in metadata if pair[0].startswith("x-")]
        self.produced.took(sum(16 + len(key) + 2 * len(value) for key, value in kept))
        try:
            context.set_initial_metadata(kept)
        except ValueError as error:  # not all that may come may be sent
            raise StatusError(StatusCode.INVALID_ARGUMENT, str(error)) from error
        self.produced.took(len(request))
        return request

    async def fail(self, _: Any, context: RpcContext) -> Reply:
        context.add_trailing_metadata([("x-why-bin", b"\0\1")])
        raise StatusError(StatusCode.ABORTED, "caf\u00e9 % \n", b"details")

    async def wait(self, _: Any, context: RpcContext) -> Reply:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody ends this wait")

    async def later(self, request: bytes, context: RpcContext) -> Reply:
        await asyncio.sleep(0)
        self.produced.took(len(request))
        return request

    async def infer(self, request: InferMessage, context: RpcContext) -> Reply:
        size = sum(map(len, request.raw))
        self.produced.took(20 + size)
        return pb.ModelInferResponse(
            model_name=str(size), raw_output_contents=map(bytes, request.raw)
        )

    async def chat(self, requests: AsyncIterator[bytes], context: RpcContext) -> None:
        async for request in requests:
            self.produced.took(len(request))
            await context.write(request)

    async def flood(self, _: Any, context: RpcContext) -> None:
        for _ in range(40):
            self.produced.took(len(_PIECE))
            await context.write(_PIECE)
