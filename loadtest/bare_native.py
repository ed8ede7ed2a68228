"""The floor of our own gRPC transport: it answers without a core behind it.

    python -m loadtest.bare_native PORT wire        the same bytes for every call, unread
    python -m loadtest.bare_native PORT messages    each request decoded, an answer encoded

Streams get the same message again and again, as fast as they are read.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import uvloop

from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceResponse
from penstock.core.tensor import Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import CompletionCallbacks, Method, RpcContext, Service, coroutine_handler
from penstock.rpc.messages import InferReader, decode_request
from penstock.rpc.native.transport import open_native
from penstock.rpc.responses import ResponseEncoder
from penstock.rpc.servicer import NAME
from penstock.rpc.typed_contents import ContentLimits
from penstock.settings import GrpcSettings

_RESPONSE = InferenceResponse({"OUTPUT0": Tensor.from_numpy(np.zeros(16, np.float32))})
_ENCODER = ResponseEncoder()


def _message() -> pb.ModelInferResponse:
    reply = pb.ModelInferResponse(model_name="identity", model_version="1")
    reply.outputs.add(name="OUTPUT0", datatype="FP32", shape=[16])
    reply.raw_output_contents.append(bytes(64))
    return reply


_BYTES: bytes = _message().SerializeToString()
_STREAMED: bytes = pb.ModelStreamInferResponse(infer_response=_message()).SerializeToString()


def _wire(_: Any, __: RpcContext, callbacks: CompletionCallbacks) -> None:
    callbacks.returned(_BYTES)


def _messages(message: Any, _: RpcContext, callbacks: CompletionCallbacks) -> None:
    callbacks.returned(_ENCODER.encode(decode_request(message), "1", _RESPONSE))


async def _stream(requests: AsyncIterator[Any], context: RpcContext) -> None:
    async for _ in requests:
        while True:
            if not context.write_nowait(_STREAMED):
                await context.writable()


def _service(depth: str) -> Service:
    reader = InferReader(ContentLimits())
    start = _messages if depth == "messages" else _wire
    unary = Method(
        "ModelInfer",
        pb.ModelInferRequest,
        pb.ModelInferResponse,
        coroutine_handler(start),
        parse=reader.read if depth == "messages" else bytes,
        eager=True,
        start=start,
        unbounded=True,
    )
    streamed = Method(
        "ModelStreamInfer",
        pb.ModelInferRequest,
        pb.ModelStreamInferResponse,
        _stream,
        client_streaming=True,
        server_streaming=True,
        unbounded=True,
    )
    return Service(NAME, [unary, streamed])


async def main(port: int, depth: str) -> None:
    """Serve until killed."""
    settings = GrpcSettings(address="127.0.0.1", port=port)
    async with open_native([_service(depth)], settings, ExitDeadline(0)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2]))
