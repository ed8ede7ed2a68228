"""What only our own transport does, or promises: bounds, Unix sockets, and what is not gRPC."""

from __future__ import annotations

import asyncio
import gc
import mmap
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.events
import pytest

from penstock.core.countdown import Countdown
from penstock.http2 import frames
from penstock.http2.errors import ErrorCode
from penstock.http2.limits import Limits
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import Method, Reply, RpcContext, Service
from penstock.rpc.native.requests import UnaryCall
from penstock.rpc.transport_native import open_native
from penstock.settings import GrpcSettings, KeepaliveSettings
from rpc.certificates import tls, write_certificates

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
        """3 GiB of memory that nobody has touched."""
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
        """Wait for ever; once cancelled, until it is let go."""
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


async def test_unix_socket_is_served_and_removed(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'socket'}"
    settings = GrpcSettings(address=address, port=0)
    async with open_native([Handlers().service()], settings, Countdown(1)):
        assert (await echo(address, "x")).id == "x"
    assert not (tmp_path / "socket").exists()


async def test_address_that_cannot_be_had_is_not_called_taken(tmp_path: Path) -> None:
    settings = GrpcSettings(address=f"unix:{tmp_path / 'missing' / 'socket'}")
    with pytest.raises(OSError, match="cannot be listened on: No such file or directory"):
        async with open_native([], settings, Countdown(0)):
            pass


async def test_slow_reader_holds_no_more_than_its_bounds() -> None:
    """Of 1,000 streams whose client reads nothing, each has a window and one message written."""
    handlers = Handlers()
    async with open_native([handlers.service()], LOCAL, Countdown(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        client.initiate_connection()
        await _exchange(client, reader, writer)
        for _ in range(1000):
            stream = client.get_next_available_stream_id()
            client.send_headers(stream, _head("/s/flood"))
            client.send_data(stream, bytes(5), end_stream=True)
        writer.write(client.data_to_send())
        await _steady(lambda: handlers.written)
        # The window of the connection, which all of them share, and one message of each.
        assert handlers.written * 1000 <= 65_535 + 1000 * 1100 + (64 << 10)
        writer.close()


async def test_calls_that_follow_a_mass_cancel_are_not_refused() -> None:
    """One client gives up 1,000 calls and begins 1,000 others at once, while those still work."""
    handlers = Handlers()
    async with (
        open_native([handlers.service()], LOCAL, Countdown(0)) as port,
        wire(port, handlers) as client,
    ):
        given_up = client.begin(1000, "/s/linger")
        await client.until(lambda: handlers.waiting == 1000)
        client.cancel(given_up)
        following = client.begin(1000, "/s/linger")
        await client.until(lambda: handlers.begun + len(client.refused) == 2000)
        assert (client.refused, handlers.lingering) == ([], 1000)
        handlers.let_go.set()
        client.cancel(following)
        await client.until(lambda: not handlers.waiting and not handlers.lingering)


async def test_calls_that_linger_have_a_bound() -> None:
    """A client that gives up calls faster than they can end is refused, and no longer than that."""
    handlers = Handlers()
    limits = Limits(max_concurrent_streams=10, max_lingering_streams=15)
    async with (
        open_native([handlers.service()], LOCAL, Countdown(0), limits) as port,
        wire(port, handlers) as client,
    ):
        for begun in (10, 10):
            calls = client.begin(begun, "/s/linger")
            await client.until(lambda: handlers.waiting == begun)  # noqa: B023
            client.cancel(calls)
            await client.until(lambda: not handlers.waiting)
        client.begin(5, "/s/linger")
        await client.until(lambda: len(client.refused) == 5)
        assert handlers.lingering == 20
        handlers.let_go.set()
        await client.until(lambda: not handlers.lingering)
        client.begin(5, "/s/linger")
        await client.until(lambda: handlers.waiting == 5)


async def test_message_larger_than_allowed_ends_its_method() -> None:
    handlers = Handlers()
    limits = Limits(max_message_size=1000)
    async with (
        open_native([handlers.service()], LOCAL, Countdown(1), limits) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stream = channel.stream_unary(
            "/s/listen", pb.ModelInferRequest.SerializeToString, pb.ModelInferResponse.FromString
        )(iter([pb.ModelInferRequest(id="x" * 2000)]))
        assert await stream.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await asyncio.wait_for(handlers.ended.wait(), PATIENCE)
        assert (await call(channel, "echo")(pb.ModelInferRequest(id="y"))).id == "y"


@pytest.mark.contract("GT-01")
async def test_response_that_no_client_takes_is_an_error() -> None:
    async with (
        open_native([Handlers().service()], LOCAL, Countdown(1)) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(channel, "burst")(pb.ModelInferRequest())
        assert refused.value.details() == (
            "Response has byte size 3221225472 which exceeds gRPC's byte size limit 2147483647."
        )


async def test_metadata_larger_than_allowed_is_refused_and_harms_nobody() -> None:
    """Within the block that the frames may have, so that the connection lives on."""
    limits = Limits(max_header_list_size=4096)
    options = [("grpc.max_metadata_size", 1 << 20)]
    async with (
        open_native([Handlers().service()], LOCAL, Countdown(1), limits) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel,
    ):
        large = [(f"x-{n}", "v") for n in range(120)]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(channel, "echo")(pb.ModelInferRequest(), metadata=large)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await call(channel, "echo")(pb.ModelInferRequest(id="y"))).id == "y"


@pytest.mark.parametrize(("method", "status"), [("GET", b"415"), ("HEAD", b"415")])
async def test_what_is_not_grpc_is_told_so(method: str, status: bytes) -> None:
    async with open_native([], LOCAL, Countdown(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        client.initiate_connection()
        client.send_headers(1, [(":method", method), *_head("/")[1:4]], end_stream=True)
        answer = await _until(client, reader, writer, h2.events.ResponseReceived)
        assert dict(answer.headers)[b":status"] == status
        writer.close()


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
async def test_client_that_does_not_ask_for_http2_is_not_served(tmp_path: Path) -> None:
    settings = GrpcSettings(address="127.0.0.1", port=0, tls=tls(write_certificates(tmp_path)))
    plain = ssl.create_default_context(cafile=str(tmp_path / "root.pem"))
    async with open_native([], settings, Countdown(0)) as port:
        reader, writer = await asyncio.open_connection("localhost", port, ssl=plain)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), PATIENCE)
        writer.close()


@pytest.mark.parametrize("sent", [[], [b"\0\0\0"], [b"\0\0\0\0\x09half"]])
async def test_request_that_does_not_come_in_time_is_not_waited_for(sent: list[bytes]) -> None:
    async with open_native([Handlers().service()], LOCAL, Countdown(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        client.initiate_connection()
        client.send_headers(1, [*_head("/s/echo"), ("grpc-timeout", "50m")])
        for data in sent:
            client.send_data(1, data)
        answer = await _until(client, reader, writer, h2.events.ResponseReceived)
        assert dict(answer.headers)[b"grpc-status"] == b"4"
        writer.close()


@pytest.mark.parametrize("apart", [False, True])
async def test_call_that_is_refused_before_it_came_whole_is_forgotten(apart: bool) -> None:
    """No timer keeps it, and its connection, until a deadline that may be years away."""
    before = _calls()
    async with open_native([Handlers().service()], LOCAL, Countdown(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        client.initiate_connection()
        client.send_headers(1, [*_head("/s/echo"), ("grpc-timeout", "1000H")])
        if apart:
            client.ping(b"are you?")
            await _until(client, reader, writer, h2.events.PingAckReceived)
            assert _calls() == before + 1
        client.send_data(1, b"\0\xff\xff\xff\xff")  # longer than any message may be
        answer = await _until(client, reader, writer, h2.events.ResponseReceived)
        assert dict(answer.headers)[b"grpc-status"] == b"8"
        writer.close()
    assert _calls() == before


def _calls() -> int:
    gc.collect()
    return sum(isinstance(thing, UnaryCall) for thing in gc.get_objects())


async def test_old_connection_is_asked_to_leave_and_closed() -> None:
    keepalive = KeepaliveSettings(max_connection_age_ms=100)
    settings = GrpcSettings(address="127.0.0.1", port=0, keepalive=keepalive)
    async with open_native([], settings, Countdown(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frames.PREFACE + frames.settings([]))
        leave = frames.goaway(frames.LARGEST_ID, ErrorCode.NO_ERROR) + frames.ping(b"draining")
        await asyncio.wait_for(reader.readuntil(leave), PATIENCE)
        writer.write(frames.ping(b"draining", ack=True))
        last = frames.goaway(0, ErrorCode.NO_ERROR)
        assert await asyncio.wait_for(reader.read(), PATIENCE) == last
        writer.close()


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
            self._client.send_headers(streams[-1], _head(path))
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
    """A client by frames of handlers that are let go at its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = Wire(reader, writer)
    hearing = asyncio.create_task(client.hear())
    try:
        yield client
    finally:
        handlers.let_go.set()
        hearing.cancel()
        writer.close()


def _head(path: str) -> list[tuple[str, str]]:
    head = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "here")]
    return [*head, ("content-type", "application/grpc"), ("te", "trailers")]


async def _exchange(
    client: h2.connection.H2Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> list[h2.events.Event]:
    """Say what there is to say, and hear what comes next."""
    writer.write(client.data_to_send())
    events = client.receive_data(await asyncio.wait_for(reader.read(1 << 16), PATIENCE))
    writer.write(client.data_to_send())
    return events


async def _until(
    client: h2.connection.H2Connection,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    kind: type[h2.events.Event],
) -> Any:
    """The first event of a kind."""
    while True:
        for event in await _exchange(client, reader, writer):
            if isinstance(event, kind):
                return event


async def _steady(count: Any) -> None:
    """Wait until a count stays as it is."""
    before = -1
    while before != count():
        before = count()
        await asyncio.sleep(0.3)
