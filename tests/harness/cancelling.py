"""Clients that change their minds: every way to leave a request, at every moment.

    python cancelling.py HOST:PORT COUNT IN_FLIGHT

Prints one line of JSON: how often each way was gone, and how the calls ended.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import numpy as np

from penstock.core.tensor import Tensor
from penstock.protocol import grpc_service_pb2 as pb

_SERVICE = "/inference.GRPCInferenceService/"
_SAMPLING = {"max_tokens": 128, "temperature": 0, "ignore_eos": True}


def _message(model: str, **inputs: Tensor) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name=model)
    for name, tensor in inputs.items():
        message.inputs.add(name=name, datatype=tensor.datatype.value, shape=tensor.shape)
        message.raw_input_contents.append(bytes(tensor.buffer))
    return message


def tokens_message() -> pb.ModelInferRequest:
    """A stream of 128 tokens."""
    return _message(
        "tiny_llm",
        text_input=Tensor.from_strings(["What is a list?"]),
        stream=Tensor.from_numpy(np.array([True])),
        sampling_parameters=Tensor.from_strings([json.dumps(_SAMPLING)]),
    )


def text_message() -> pb.ModelInferRequest:
    """One embedding, in a batch with others."""
    return _message("minilm", TEXT=Tensor.from_strings(["To be cancelled."], shape=(1, 1)))


class Leavers:
    """Many calls at a time, each left in a way of its own."""

    def __init__(self, target: str, seed: int = 0) -> None:
        self.outcomes: Counter[str] = Counter()
        self._target = target
        self._random = random.Random(seed)
        self._channels: list[grpc.aio.Channel] = []
        self._tokens, self._text = tokens_message(), text_message()
        self._ways: list[Callable[[], Awaitable[None]]] = [
            self.cancel_at_once,
            self.cancel_while_streaming,
            self.deadline_of_a_stream,
            self.deadline_of_a_call,
            self.cancel_a_call,
            self.half_close_and_cancel,
            self.disconnect,
        ]

    async def run(self, count: int, in_flight: int) -> None:
        """Make and leave `count` calls, `in_flight` at a time."""
        self._channels = [self._channel() for _ in range(4)]
        left = iter(range(count))

        async def worker() -> None:
            for number in left:
                await self._leave(self._ways[number % len(self._ways)])

        await asyncio.gather(*(worker() for _ in range(in_flight)))
        await asyncio.gather(*(channel.close(None) for channel in self._channels))

    async def _leave(self, way: Callable[[], Awaitable[None]]) -> None:
        name = way.__name__
        try:
            await way()
            self.outcomes[f"{name}: left"] += 1
        except asyncio.CancelledError:
            self.outcomes[f"{name}: CANCELLED"] += 1
        except grpc.aio.AioRpcError as error:
            detail = f" {error.details()}" if error.code() is grpc.StatusCode.INTERNAL else ""
            self.outcomes[f"{name}: {error.code().name}{detail}"] += 1

    # -- ways to leave ------------------------------------------------------------------------

    async def cancel_at_once(self) -> None:
        self._stream().cancel()

    async def cancel_while_streaming(self) -> None:
        call = self._stream()
        for _ in range(self._random.randrange(1, 6)):
            await call.read()
        call.cancel()

    async def deadline_of_a_stream(self) -> None:
        async for _ in self._stream(timeout=self._random.uniform(0.001, 0.1)):
            pass

    async def deadline_of_a_call(self) -> None:
        await self._call(timeout=self._random.uniform(0.001, 0.02))

    async def cancel_a_call(self) -> None:
        call = self._call()
        await asyncio.sleep(self._random.uniform(0, 0.01))
        call.cancel()
        await call

    async def half_close_and_cancel(self) -> None:
        """All requests are sent; what is cancelled are the answers."""
        call = self._stream_stream()(timeout=20)
        await call.write(self._tokens)
        await call.write(self._text)
        await call.done_writing()
        await call.read()
        call.cancel()

    async def disconnect(self) -> None:
        async with self._channel() as channel:
            await self._stream_stream(channel)(iter([self._tokens])).read()

    def _call(self, timeout: float | None = None) -> Any:
        channel = self._random.choice(self._channels)
        call = channel.unary_unary(
            _SERVICE + "ModelInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )
        return call(self._text, timeout=timeout)

    def _stream(self, timeout: float | None = None) -> Any:
        return self._stream_stream()(iter([self._tokens]), timeout=timeout)

    def _stream_stream(self, channel: grpc.aio.Channel | None = None) -> Any:
        return (channel or self._random.choice(self._channels)).stream_stream(
            _SERVICE + "ModelStreamInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )

    def _channel(self) -> grpc.aio.Channel:
        options = [("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.insecure_channel(self._target, options=options)


async def main(target: str, count: int, in_flight: int) -> None:
    leavers = Leavers(target)
    await leavers.run(count, in_flight)
    print(json.dumps(leavers.outcomes))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
