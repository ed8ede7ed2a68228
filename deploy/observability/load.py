"""A load on the demo's models that gives every panel something to show.

    python -m deploy.observability.load 127.0.0.1:8001 --seconds 60

Encoders get bursts, so that batches form; half of the cached model's requests repeat; language
models are streamed, and every few streams the client goes away.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence

import grpc
import numpy as np

from penstock.protocol import grpc_service_pb2 as pb

_SERVICE = "/inference.GRPCInferenceService/"
_SENTENCES = (
    "The weather is lovely today.",
    "It is so sunny outside!",
    "He drove to the stadium.",
    "A penstock carries water to the turbine, and a gate at its top says how much.",
)
_PROMPTS = "The function returns", "The file is", "This method", "A list of"
_STREAMS = 3
_GIVE_UP = 0.2
"""The share of streams whose client goes away."""

Call = Callable[[], Awaitable[None]]


class Clients:
    """Clients of one server, each a loop of calls until it is cancelled."""

    def __init__(self, channel: grpc.aio.Channel, random_numbers: random.Random) -> None:
        self._random = random_numbers
        self._infer = channel.unary_unary(
            f"{_SERVICE}ModelInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )
        self._stream = channel.stream_stream(
            f"{_SERVICE}ModelStreamInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        self._index = channel.unary_unary(
            f"{_SERVICE}RepositoryIndex",
            request_serializer=pb.RepositoryIndexRequest.SerializeToString,
            response_deserializer=pb.RepositoryIndexResponse.FromString,
        )

    async def run(self) -> None:
        """Call the models that are ready."""
        index = await self._index(pb.RepositoryIndexRequest(ready=True))
        ready = {model.name for model in index.models}
        calls: dict[str, tuple[Call, int, float]] = {
            "simple": (self._simple, 2, 0.05),
            "identity": (self._identity, 2, 0.05),
            "minilm": (self._encode, 1, 0.1),
            "tiny_llm": (self._generate, _STREAMS, 0.1),
        }
        loops = [
            self._loop(call, pause)
            for model, (call, count, pause) in calls.items()
            if model in ready
            for _ in range(count)
        ]
        await asyncio.gather(*loops)

    async def _loop(self, call: Call, pause: float) -> None:
        while True:
            await call()
            await asyncio.sleep(self._random.uniform(0, 2 * pause))

    async def _simple(self) -> None:
        """Half of the requests are one of five, which a cache knows."""
        number = self._random.choice((self._random.randrange(5), self._random.getrandbits(30)))
        values = np.full((1, 16), number, np.int32)
        await self._infer(_request("simple", {"INPUT0": values, "INPUT1": values}))

    async def _identity(self) -> None:
        values = np.zeros((1, self._random.choice((16, 256, 4096))), np.float32)
        await self._infer(_request("identity", {"INPUT0": values}))

    async def _encode(self) -> None:
        """A burst, as of one user's documents."""
        texts = self._random.choices(_SENTENCES, k=self._random.randint(1, 12))
        requests = (_request("minilm", {"TEXT": _text([[text]])}) for text in texts)
        await asyncio.gather(*(self._infer(request) for request in requests))

    async def _generate(self) -> None:
        sampling = {"max_tokens": self._random.randint(8, 48), "temperature": 0}
        request = _request(
            "tiny_llm",
            {
                "text_input": _text([self._random.choice(_PROMPTS)]),
                "stream": np.array([True]),
                "sampling_parameters": _text([json.dumps(sampling)]),
            },
        )
        tokens = self._random.randint(1, 4) if self._random.random() < _GIVE_UP else None
        call = self._stream(iter([request]))
        count = 0
        async for _ in call:
            count += 1
            if count == tokens:
                call.cancel()
                return


def _text(values: Sequence[object]) -> np.ndarray[tuple[int, ...], np.dtype[np.object_]]:
    return np.array(values, np.object_)


_DATATYPES = {"int32": "INT32", "float32": "FP32", "bool": "BOOL", "object": "BYTES"}


def _request(
    model: str, inputs: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]
) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=model)
    for name, value in inputs.items():
        request.inputs.add(name=name, datatype=_DATATYPES[value.dtype.name], shape=value.shape)
        request.raw_input_contents.append(_raw(value))
    return request


def _raw(value: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bytes:
    if value.dtype != np.object_:
        return value.tobytes()
    texts = [str(text).encode() for text in value.flat]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


async def load(target: str, seconds: float | None = None, seed: int = 0) -> None:
    """Put the load on a server's gRPC port, for so many seconds or until cancelled."""
    async with grpc.aio.insecure_channel(target) as channel:
        clients = Clients(channel, random.Random(seed))
        try:
            await asyncio.wait_for(clients.run(), seconds)
        except TimeoutError:
            return


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m deploy.observability.load")
    parser.add_argument("target", help="host:port of gRPC")
    parser.add_argument("--seconds", type=float, help="end then; else at a signal")
    options = parser.parse_args()
    asyncio.run(load(options.target, options.seconds))


if __name__ == "__main__":
    main()
