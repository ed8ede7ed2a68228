"""An endpoint of our own transport, and a client that speaks HTTP/2 frame by frame."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.events

from harness.raw_clients import hang_up
from penstock.http2.frames import ErrorCode
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import Method, Reply, RpcContext, Service
from penstock.settings import GrpcSettings

LOCAL = GrpcSettings(address="127.0.0.1", port=0)

PATIENCE = 20.0


class Handlers:
    """An echo, and a stream without an end that counts what it has written."""

    def __init__(self) -> None:
        self.written = 0
        self.ended = asyncio.Event()
        self.begun = 0
        self.waiting = 0
        self.lingering = 0
        self.let_go = asyncio.Event()

    def service(self) -> Service:
        kinds = pb.ModelInferRequest, pb.ModelInferResponse
        return Service(
            "s",
            [
                Method("echo", *kinds, self.echo, eager=True),
                Method("burst", *kinds, self.burst, eager=True),
                Method("flood", *kinds, self.flood, server_streaming=True),
                Method("listen", *kinds, self.listen, client_streaming=True),
                Method("linger", *kinds, self.linger, eager=True),
            ],
        )

    async def echo(self, request: Any, _: RpcContext) -> Reply:
        return pb.ModelInferResponse(id=request.id)

    async def burst(self, _: Any, __: RpcContext) -> Reply:
        """3 GiB of untouched memory."""
        return [memoryview(mmap.mmap(-1, 1 << 30))] * 3

    async def flood(self, _: Any, context: RpcContext) -> None:
        while True:
            await context.write(pb.ModelInferResponse(raw_output_contents=[bytes(1000)]))
            self.written += 1

    async def listen(self, requests: AsyncIterator[Any], _: RpcContext) -> Reply:
        try:
            async for _ in requests:
                pass
        finally:
            self.ended.set()
        return pb.ModelInferResponse()

    async def linger(self, _: Any, __: RpcContext) -> None:
        """Wait for ever; once cancelled, until it is released."""
        self.begun += 1
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1
            self.lingering += 1
            await self.let_go.wait()
            self.lingering -= 1


def echo(target: str, id: str) -> Any:
    return call(grpc.aio.insecure_channel(target), "echo")(pb.ModelInferRequest(id=id))


def call(channel: grpc.aio.Channel, name: str) -> Any:
    return channel.unary_unary(
        f"/s/{name}", pb.ModelInferRequest.SerializeToString, pb.ModelInferResponse.FromString
    )


class Wire:
    """A client by frames. `refused` are the streams that the server would not open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.refused: list[int] = []
        self._reader = reader
        self._writer = writer
        self._client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self._client.initiate_connection()

    def begin(self, count: int, path: str) -> list[int]:
        """Calls with an empty message, sent in one piece."""
        streams = []
        self._client.MAX_CLOSED_STREAMS = 1 << 16
        for _ in range(count):
            streams.append(self._client.get_next_available_stream_id())
            self._client.send_headers(streams[-1], head(path))
            self._client.send_data(streams[-1], bytes(5), end_stream=True)
        return streams

    def cancel(self, streams: list[int]) -> None:
        """Give calls up, with what is sent next."""
        for stream in streams:
            self._client.reset_stream(stream, ErrorCode.CANCEL)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Say what there is to say, and wait for a condition."""
        self._writer.write(self._client.data_to_send())
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 (nothing else tells)
                await asyncio.sleep(0.01)

    async def hear(self) -> None:
        """Read until the server has no more to say."""
        while data := await self._reader.read(1 << 16):
            for event in self._client.receive_data(data):
                if isinstance(event, h2.events.StreamReset):
                    assert event.error_code == ErrorCode.REFUSED_STREAM
                    self.refused.append(event.stream_id)
            self._writer.write(self._client.data_to_send())


@asynccontextmanager
async def wire(port: int, handlers: Handlers) -> AsyncIterator[Wire]:
    """A client, by frames, of handlers that are released at its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = Wire(reader, writer)
    hearing = asyncio.create_task(client.hear())
    try:
        yield client
    finally:
        handlers.let_go.set()
        hearing.cancel()
        await hang_up(writer)


def head(path: str) -> list[tuple[str, str]]:
    head = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "here")]
    return [*head, ("content-type", "application/grpc"), ("te", "trailers")]


async def exchange(
    client: h2.connection.H2Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> list[h2.events.Event]:
    """Say what there is to say, and hear what comes next."""
    writer.write(client.data_to_send())
    events = client.receive_data(await asyncio.wait_for(reader.read(1 << 16), PATIENCE))
    writer.write(client.data_to_send())
    return events


async def until(
    client: h2.connection.H2Connection,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    kind: type[h2.events.Event],
) -> Any:
    """The first event of a kind."""
    while True:
        for event in await exchange(client, reader, writer):
            if isinstance(event, kind):
                return event
