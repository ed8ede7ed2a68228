"""Traffic of a gRPC client: recorded from gRPC's C++ core, against this server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from http2.fuzzing.services import NAME, Methods
from penstock.core.exit_deadline import ExitDeadline
from penstock.http2.frames import HEADER, HEADER_SIZE, PREFACE
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.native.transport import open_native
from penstock.settings import GrpcSettings


async def record() -> list[list[bytes]]:
    """The frames of each connection, the preface not among them."""
    heard: list[bytearray] = []
    settings = GrpcSettings(address="127.0.0.1", port=0)
    async with (
        open_native([Methods().service()], settings, ExitDeadline(0)) as port,
        _relay(port, heard) as relay,
    ):
        for compression in (None, grpc.Compression.Gzip, grpc.Compression.Deflate):
            await _talk(f"127.0.0.1:{relay}", compression)
    return [frames_of(bytes(talk)) for talk in heard]


def frames_of(talk: bytes) -> list[bytes]:
    """The whole frames of what a client has said."""
    at = len(PREFACE) if talk.startswith(PREFACE) else 0
    found = []
    while at + HEADER_SIZE <= len(talk):
        high, low, *_ = HEADER.unpack_from(talk, at)
        end = at + HEADER_SIZE + (high << 16 | low)
        if end <= len(talk):
            found.append(talk[at:end])
        at = end
    return found


@asynccontextmanager
async def _relay(port: int, heard: list[bytearray]) -> AsyncIterator[int]:
    """A port that passes everything on, and keeps what clients say."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: Any) -> None:
        while data := await reader.read(1 << 16):
            kept.extend(data)
            writer.write(data)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(bytearray())
        back, forth = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as both:
            both.create_task(copy(reader, forth, heard[-1]))
            both.create_task(copy(back, writer, bytearray()))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _talk(target: str, compression: Any) -> None:
    """Every method, with small and large messages, metadata, deadlines and cancellation."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    opened = grpc.aio.insecure_channel(target, options=options, compression=compression)
    channel: Any  # its stubs ask for serializers, which bytes need not
    async with opened as channel:
        echo = channel.unary_unary(f"/{NAME}/Echo")
        for size in (0, 10, 20_000, 300_000):
            await echo(bytes(size), metadata=[("x-a", "1"), ("x-b-bin", b"\0\xff")], timeout=20)
        infer = channel.unary_unary(f"/{NAME}/Infer")
        request = pb.ModelInferRequest(model_name="m", raw_input_contents=[bytes(20_000)] * 2)
        request.inputs.add(name="IN", datatype="UINT8", shape=[20_000])
        await infer(request.SerializeToString())
        await _ends(channel.unary_unary(f"/{NAME}/Fail")(b""))
        await _ends(channel.unary_unary(f"/{NAME}/Wait")(b"", timeout=0.05))
        await _ends(channel.unary_unary(f"/{NAME}/Unknown")(b""))
        chat = channel.stream_stream(f"/{NAME}/Chat")
        async for _ in chat(iter([b"a", bytes(1000), bytes(70_000)])):
            pass
        cancelled = chat()
        await cancelled.write(b"a")
        cancelled.cancel()
        async for _ in channel.unary_stream(f"/{NAME}/Flood")(b""):
            pass


async def _ends(call: Any) -> None:
    try:
        await call
    except grpc.aio.AioRpcError:
        return
    raise AssertionError("the call was to fail")
