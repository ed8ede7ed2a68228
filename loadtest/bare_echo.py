"""The floor of a unary call: a `grpc.aio` server without a server behind it."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")

import grpc
import uvloop

from penstock.protocol import grpc_service_pb2 as pb


async def echo(request: pb.ModelInferRequest, _: Any) -> pb.ModelInferResponse:
    """Answer with the first tensor, by another name."""
    reply = pb.ModelInferResponse(model_name=request.model_name, model_version="1", id=request.id)
    tensor = request.inputs[0]
    reply.outputs.add(name="OUTPUT0", datatype=tensor.datatype, shape=tensor.shape)
    reply.raw_output_contents.append(request.raw_input_contents[0])
    return reply


async def main(port: int) -> None:
    """Serve until killed."""
    handler = grpc.unary_unary_rpc_method_handler(
        echo,
        request_deserializer=pb.ModelInferRequest.FromString,
        response_serializer=pb.ModelInferResponse.SerializeToString,
    )
    server = grpc.aio.server()
    service = "inference.GRPCInferenceService"
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"ModelInfer": handler}),)
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
