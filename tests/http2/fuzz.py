"""Changed conversations against a whole connection, gRPC and methods included.

    python -m http2.fuzz INPUTS [SEED]    (with tests/ on PYTHONPATH)

Every input is a good conversation of which bytes were changed, dropped, doubled, or cut off. No
exception may leave the connection, and nothing may stay behind. Prints the rate and the growth of
memory; a failure shows the seed that repeats it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import resource
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import uvloop

from penstock.core.errors import NotFoundError
from penstock.http2 import frames
from penstock.http2.errors import ErrorCode
from penstock.http2.frames import END_STREAM, PADDED, FrameType
from penstock.http2.header_encoding import encode
from penstock.http2.hpack import Field
from penstock.http2.limits import Limits
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import Method, Reply, RpcContext, Service
from penstock.rpc.infer_message import parse_infer
from penstock.rpc.native.endpoint import Endpoint
from penstock.rpc.native.routes import Routes
from penstock.rpc.native.shell import Shell
from penstock.settings import KeepaliveSettings

LIMITS = Limits(stream_window=100_000, connection_window=300_000, max_message_size=1 << 20)
_MESSAGE = pb.ModelInferRequest(
    model_name="m", id="x", raw_input_contents=[bytes(200), bytes(9000)]
).SerializeToString()
_BATCH = 500


class Transport(asyncio.Transport):
    """Takes everything and counts it."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def write(self, data: Any) -> None:
        self.size += len(data)

    def writelines(self, parts: Any) -> None:
        self.size += sum(map(len, parts))


def service() -> Service:
    """One method of each kind, and one that fails."""
    request, response = pb.ModelInferRequest, pb.ModelInferResponse
    return Service(
        "s",
        [
            Method("echo", request, response, _echo, parse=parse_infer, eager=True),
            Method("wait", request, response, _wait),
            Method("fail", request, response, _fail, eager=True),
            Method("talk", request, response, _talk, client_streaming=True, server_streaming=True),
        ],
    )


async def _echo(request: Any, _: RpcContext) -> Reply:
    return pb.ModelInferResponse(raw_output_contents=list(map(bytes, request.raw)))


async def _wait(_: Any, __: RpcContext) -> Reply:
    await asyncio.sleep(0)
    return pb.ModelInferResponse()


async def _fail(request: Any, _: RpcContext) -> Reply:
    raise NotFoundError(request.id)


async def _talk(requests: AsyncIterator[Any], context: RpcContext) -> None:
    async for request in requests:
        await context.write(pb.ModelInferResponse(id=request.id))


def conversation(dice: random.Random) -> bytearray:
    """What a client could well send."""
    talk = bytearray(frames.PREFACE + frames.settings([(4, dice.choice([0, 100, 65_535]))]))
    for stream_id in range(1, 2 * dice.randint(1, 4), 2):
        talk += _call(dice, stream_id)
    talk += dice.choice(
        [
            b"",
            frames.ping(b"12345678"),
            frames.window_update(0, 5000),
            frames.settings([(1, 0), (5, 20_000)]),
            frames.goaway(0, ErrorCode.NO_ERROR),
            frames.frame(FrameType.PRIORITY, 0, 1, b"\0\0\0\3\x10"),
            frames.frame(0x77, 0, 3, bytes(30)),
        ]
    )
    return talk


def _call(dice: random.Random, stream_id: int) -> bytes:
    path = dice.choice([b"/s/echo", b"/s/wait", b"/s/fail", b"/s/talk", b"/s/none"])
    fields: list[Field] = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path)]
    fields += [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
    fields += dice.choice([[], [(b"grpc-timeout", b"1S")], [(b"x-a-bin", b"AAA")]])
    block = encode(fields)
    sent = frames.headers(stream_id, block, dice.choice([20, 1 << 14]), end_stream=False)
    data = b"".join(
        b"\0" + len(_MESSAGE).to_bytes(4, "big") + _MESSAGE
        for _ in range(dice.choice([0, 1, 1, 2]))
    )
    cut = dice.choice([100, 1 << 14])
    for at in range(0, len(data), cut):
        sent += frames.frame(FrameType.DATA, 0, stream_id, data[at : at + cut])
    if dice.random() < 0.2:
        return sent + frames.rst_stream(stream_id, ErrorCode.CANCEL)
    if dice.random() < 0.3:
        return sent + frames.frame(FrameType.DATA, END_STREAM | PADDED, stream_id, b"\x03\0\0\0")
    return sent + frames.frame(FrameType.DATA, END_STREAM, stream_id)


def changed(dice: random.Random, talk: bytearray) -> bytearray:
    """The same with a few faults."""
    for _ in range(dice.randint(0, 5)):
        at = dice.randrange(len(talk))
        match dice.randrange(4):
            case 0:
                talk[at] = dice.randrange(256)
            case 1:
                del talk[at : at + dice.randrange(12)]
            case 2:
                talk[at:at] = talk[at : at + dice.randrange(60)]
            case _:
                talk[at:at] = dice.randbytes(dice.randrange(20))
        talk = talk or bytearray(1)
    return talk[: dice.randrange(len(talk)) + 1] if dice.random() < 0.1 else talk


async def one(endpoint: Endpoint, seed: int) -> None:
    """One input, from the first byte to the lost connection."""
    dice = random.Random(seed)
    talk = changed(dice, conversation(dice))
    shell, transport = Shell(endpoint), Transport()
    shell.connection_made(transport)
    at = 0
    while at < len(talk) and not transport.closed:
        buffer = shell.get_buffer(-1)
        size = min(len(buffer), len(talk) - at, dice.choice([1, 30, 1000, 1 << 20]))
        buffer[:size] = talk[at : at + size]
        del buffer
        at += size
        shell.buffer_updated(size)
        if dice.random() < 0.1:
            await asyncio.sleep(0)
    shell.connection_lost(None)
    assert not shell.connection.streams, seed


async def run(inputs: int, seed: int) -> float:
    """So many inputs; by how many KiB the process has grown since the first part of them."""
    endpoint = Endpoint(Routes([service()]), LIMITS, KeepaliveSettings())
    faults: list[str] = []
    endpoint.loop.set_exception_handler(lambda _, context: faults.append(str(context)))
    before = 0
    for number in range(inputs):
        await one(endpoint, seed + number)
        if number % _BATCH == 0:
            await _settle(endpoint)
            assert not faults, (seed + number, faults)
        if number == inputs // 5:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await _settle(endpoint)
    assert not faults, faults
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


async def _settle(endpoint: Endpoint) -> None:
    """Let cancelled methods end."""
    for _ in range(20):
        await asyncio.sleep(0)
    assert not endpoint.tasks


def main(inputs: int, seed: int = 0) -> None:
    logging.disable(logging.CRITICAL)
    begun = time.perf_counter()
    growth = uvloop.run(run(inputs, seed))
    seconds = time.perf_counter() - begun
    print(
        f"{inputs} inputs in {seconds:.0f} s, {inputs / seconds:.0f}/s; grown by {growth:.0f} KiB"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
