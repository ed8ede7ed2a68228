"""Clients of a language model who leave: over every wire, and at random moments.

    python -m loadtest.llm_leavers GRPC HTTP MODEL COUNT IN_FLIGHT SEED

Prints one line of JSON for each request: its number, from which its trace has its id, how and when
the client left, in nanoseconds since the epoch, and the responses that it had by then.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import grpc

from loadtest.llm_requests import grpc_request, sse_body
from penstock.http2.hpack import encode
from penstock.protocol import grpc_service_pb2 as pb

TRACE_BASE = 0x5EED << 64
"""A trace's id is this and the number of its request."""
WIRES = ("gRPC cancel", "SSE closed", "disconnect", "deadline")
AT_A_TOKEN = "at a token"
"""A moment: as soon as a response has come, when the engine is between two steps, or about to be;
the others are a time after the beginning, and a time after a response."""
MOMENTS = ("after a time", "after a response", AT_A_TOKEN)

_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
_SAMPLING = {"max_tokens": 200, "temperature": 0, "ignore_eos": True}
_LATE_BEFORE_SENT = "Internal error from Core"
"""What gRPC's client says where the deadline passes before the request was written."""
_LONGEST_WAIT = 0.2  # seconds until a client leaves that does not wait for a response
_LONGEST_PAUSE = 0.02  # seconds between a response and the leaving


@dataclass(slots=True)
class Left:
    """How one client left; `ended` if the answer came to its end before."""

    number: int
    wire: str
    moment: str
    at: int = 0
    responses: int = 0
    ended: bool = False


class Leavers:
    """Requests of which each is left."""

    def __init__(self, target: str, http: str, model: str, seed: int) -> None:
        self._target, self._http, self._model = target, http, model
        self._random = random.Random(seed)
        self._channels = [grpc.aio.insecure_channel(target) for _ in range(2)]
        self._ways: dict[str, Callable[[Left, str, float, int], Awaitable[None]]] = {
            "gRPC cancel": self._cancel,
            "SSE closed": self._close_events,
            "disconnect": self._disconnect,
            "deadline": self._deadline,
        }

    async def run(self, count: int, in_flight: int) -> None:
        """Make and leave `count` requests, so many at a time."""
        numbers = iter(range(1, count + 1))

        async def worker() -> None:
            for number in numbers:
                left = await self._leave(number)
                print(json.dumps(asdict(left)), flush=True)

        await asyncio.gather(*(worker() for _ in range(in_flight)))
        await asyncio.gather(*(channel.close(None) for channel in self._channels))

    async def _leave(self, number: int) -> Left:
        wire = WIRES[number % len(WIRES)]
        moment = self._random.choice(MOMENTS)
        # A deadline is given at the beginning, so it cannot follow a response.
        left = Left(number, wire, MOMENTS[0] if wire == "deadline" else moment)
        prompt = f"{number} " + "word " * self._random.choice((2, 800))
        seconds = 0.0
        if left.moment == MOMENTS[0]:
            longest = _LONGEST_WAIT * (3 if wire == "deadline" else 1)
            seconds = self._random.uniform(0.0005, longest)
        elif left.moment == MOMENTS[1]:
            seconds = self._random.uniform(0.0, _LONGEST_PAUSE)
        responses = 0 if left.moment == MOMENTS[0] else self._random.randrange(1, 12)
        await self._ways[wire](left, prompt, seconds, responses)
        return left

    async def _until(
        self, left: Left, read: Callable[[], Awaitable[bool]], seconds: float, responses: int
    ) -> None:
        """Read `responses`, then for so many seconds; `read` says whether there may be more."""
        while left.responses < responses:
            if not await read():
                left.ended = True
                return
        if not seconds:
            return
        end = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(end):
                while await read():
                    pass
            left.ended = True
        except TimeoutError:
            pass

    async def _cancel(self, left: Left, prompt: str, seconds: float, responses: int) -> None:
        call = self._call(left.number, prompt, None)

        async def read() -> bool:
            # Shielded: a cancelled read would cancel the call before the time is noted.
            more = bool(await asyncio.shield(asyncio.ensure_future(call.read())))
            left.responses += more
            return more

        await self._until(left, read, seconds, responses)
        left.at = time.time_ns()
        call.cancel()

    async def _deadline(self, left: Left, prompt: str, seconds: float, _: int) -> None:
        left.at = time.time_ns() + int(seconds * 1e9)
        try:
            async for _message in self._call(left.number, prompt, seconds):
                left.responses += 1
            left.ended = True
        except grpc.aio.AioRpcError as error:
            late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            if not late and error.details() != _LATE_BEFORE_SENT:
                raise

    async def _close_events(self, left: Left, prompt: str, seconds: float, responses: int) -> None:
        body = sse_body(prompt, _SAMPLING)
        head = f"POST /v2/models/{self._model}/generate_stream HTTP/1.1\r\nhost: {self._http}\r\n"
        head += f"traceparent: {traceparent(left.number)}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        await self._over_socket(
            left, self._http, head.encode() + body, b"data: {", seconds, responses
        )

    async def _disconnect(self, left: Left, prompt: str, seconds: float, responses: int) -> None:
        message = grpc_request(self._model, prompt, _SAMPLING).SerializeToString()
        fields = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", _METHOD.encode()),
            (b":authority", self._target.encode()),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"traceparent", traceparent(left.number).encode()),
        ]
        body = struct.pack(">BI", 0, len(message)) + message
        sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"")
        sent += _frame(1, 4, 1, encode(fields)) + _frame(0, 1, 1, body)
        await self._over_socket(left, self._target, sent, b"text_output", seconds, responses)

    async def _over_socket(
        self,
        left: Left,
        target: str,
        request: bytes,
        mark: bytes,
        seconds: float,
        responses: int,
    ) -> None:
        """A request on a connection of its own, which is then cut; `mark` is in each response."""
        host, _, port = target.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)

        async def read() -> bool:
            received = await reader.read(1 << 16)
            left.responses += received.count(mark)
            return bool(received) and b"[DONE]" not in received

        await self._until(left, read, seconds, responses)
        left.at = time.time_ns()
        writer.transport.abort()

    def _call(self, number: int, prompt: str, timeout: float | None) -> Any:
        call = self._channels[number // len(WIRES) % len(self._channels)].stream_stream(
            _METHOD,
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        requests = iter([grpc_request(self._model, prompt, _SAMPLING)])
        return call(requests, timeout=timeout, metadata=(("traceparent", traceparent(number)),))


def traceparent(number: int) -> str:
    """The context of the request of this number."""
    return f"00-{TRACE_BASE | number:032x}-{0xAA:016x}-01"


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


async def main(arguments: Sequence[str]) -> None:
    target, http, model, count, in_flight, seed = arguments
    await Leavers(target, http, model, int(seed)).run(int(count), int(in_flight))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
