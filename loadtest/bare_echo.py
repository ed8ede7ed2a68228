"""The floor of calls and streams: a `grpc.aio` server without a server behind it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")

import grpc
import numpy as np
import uvloop

from penstock.protocol import grpc_service_pb2 as pb


async def echo(request: pb.ModelInferRequest, _: Any) -> pb.ModelInferResponse:
    """Answer with the first tensor, by another name."""
    reply = pb.ModelInferResponse(model_name=request.model_name, model_version="1", id=request.id)
    tensor = request.inputs[0]
    reply.outputs.add(name="OUTPUT0", datatype=tensor.datatype, shape=tensor.shape)
    reply.raw_output_contents.append(request.raw_input_contents[0])
    return reply


async def repeat(
    requests: AsyncIterator[pb.ModelInferRequest], _: Any
) -> AsyncIterator[pb.ModelStreamInferResponse]:
    """A response for each element of the first tensor, as many milliseconds after the one before
    as the second says."""
    async for request in requests:
        values, delays = (np.frombuffer(raw, np.int32) for raw in request.raw_input_contents[:2])
        for index, delay in enumerate(delays.tolist()):
            if delay:
                await asyncio.sleep(delay / 1000)
            reply = pb.ModelInferResponse(model_name=request.model_name, model_version="1")
            reply.outputs.add(name="OUT", datatype="INT32", shape=[1])
            reply.outputs.add(name="IDX", datatype="UINT32", shape=[1])
            reply.raw_output_contents.append(values[index].tobytes())
            reply.raw_output_contents.append(np.uint32(index).tobytes())
            yield pb.ModelStreamInferResponse(infer_response=reply)


async def main(port: int) -> None:
    """Serve until killed."""
    calls = grpc.unary_unary_rpc_method_handler(
        echo,
        request_deserializer=pb.ModelInferRequest.FromString,
        response_serializer=pb.ModelInferResponse.SerializeToString,
    )
    streams = grpc.stream_stream_rpc_method_handler(
        repeat,
        request_deserializer=pb.ModelInferRequest.FromString,
        response_serializer=pb.ModelStreamInferResponse.SerializeToString,
    )
    server = grpc.aio.server()
    service = "inference.GRPCInferenceService"
    handlers = {"ModelInfer": calls, "ModelStreamInfer": streams}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
