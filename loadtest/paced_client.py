"""Listens to paced streams in a process of its own; writes how late each response came."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import NamedTuple

import grpc
import numpy as np
import uvloop

from penstock.protocol import grpc_service_pb2 as pb

_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
_CONNECTIONS = 4


class Paced(NamedTuple):
    """So many streams with so many responses each, one every `pace` seconds."""

    target: str
    streams: int
    responses: int
    pace: float


async def listen(plan: Paced) -> list[int]:
    """Nanoseconds between the making of each response and its coming."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    count = min(_CONNECTIONS, plan.streams)
    channels = [grpc.aio.insecure_channel(plan.target, options=options) for _ in range(count)]
    late: list[int] = []

    async def one(number: int) -> None:
        await asyncio.sleep(plan.pace * number / plan.streams)
        call = channels[number % count].stream_stream(
            _METHOD,
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=bytes,
        )
        async for answer in call(iter([_request(plan)])):
            now = time.monotonic_ns()
            response = pb.ModelStreamInferResponse.FromString(answer)
            if response.error_message:
                raise SystemExit(response.error_message)
            if contents := response.infer_response.raw_output_contents:
                late.append(now - int.from_bytes(contents[0], "little"))

    await asyncio.gather(*map(one, range(plan.streams)))
    await asyncio.gather(*(channel.close(None) for channel in channels))
    return late


def _request(plan: Paced) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="paced")
    request.inputs.add(name="PLAN", datatype="FP64", shape=[2])
    request.raw_input_contents.append(np.array([plan.responses, plan.pace]).tobytes())
    return request


if __name__ == "__main__":
    heard = uvloop.run(listen(Paced(*json.loads(sys.argv[1]))))
    sys.stdout.buffer.write((np.array(heard) / 1e9).tobytes())
