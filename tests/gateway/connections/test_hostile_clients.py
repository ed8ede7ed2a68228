"""Clients that send too much or too slowly, on the HTTP port and on that of metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import httpx
import pytest

from gateway.serving import LOCAL, FakeServer, SilentServer
from harness.raw_clients import hang_up
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceResponse
from penstock.gateway.app import open_gateway
from penstock.gateway.connections.open_connections import ConnectionRules
from penstock.gateway.metrics import open_metrics
from penstock.http1.limits import HttpLimits
from penstock.settings import MetricsSettings

_PATIENCE = 30.0
_KIB = 1 << 10
_INFER = "/v2/models/numbers/infer"
_PORTS = pytest.mark.parametrize("port_of", ["http", "metrics"])


def _open(kind: str, limits: HttpLimits) -> AbstractAsyncContextManager[int]:
    rules = ConnectionRules(limits)
    if kind == "http":
        return open_gateway(FakeServer(), LOCAL, ExitDeadline(1), rules)
    return open_metrics(_scrape, MetricsSettings(address="127.0.0.1", port=0), rules)


async def _scrape(accept: str) -> tuple[bytes, str]:
    return b"x 1\n", "text/plain"


@asynccontextmanager
async def _connected(
    kind: str = "http", limits: HttpLimits | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A raw connection to a port."""
    async with _open(kind, limits or HttpLimits()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer
        finally:
            await hang_up(writer)


def _head(size: int, fields: int = 1) -> bytes:
    """A request of so many bytes and fields, without a body."""
    lines = ["GET /metrics HTTP/1.1", "host: x", *(f"a{n}: b" for n in range(fields - 2))]
    text = "\r\n".join(lines)
    padding = size - len(text) - len("\r\npad: \r\n\r\n")
    return f"{text}\r\npad: {'x' * padding}\r\n\r\n".encode()


async def _status(reader: asyncio.StreamReader) -> int:
    line = await asyncio.wait_for(reader.readuntil(b"\r\n"), _PATIENCE)
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _PATIENCE)
    return int(line.split()[1])


async def _ended(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server closes the connection."""
    return await asyncio.wait_for(reader.read(), _PATIENCE)


# -- heads ----------------------------------------------------------------------------------------


@_PORTS
@pytest.mark.parametrize(
    ("size", "fields", "refused"),
    [
        (64 * _KIB, 2, False),
        (64 * _KIB + 1, 2, True),
        (64 * _KIB, 100, False),
        (4 * _KIB, 101, True),
    ],
)
async def test_head_has_64_kib_and_100_fields(
    port_of: str, size: int, fields: int, refused: bool
) -> None:
    async with _connected(port_of) as (reader, writer):
        writer.write(_head(size, fields))
        assert (await _status(reader) == 431) is refused
        if refused:
            await _ended(reader)


async def test_head_that_comes_in_pieces_is_counted_as_a_whole() -> None:
    async with _connected() as (reader, writer):
        head = _head(64 * _KIB + 1)
        for at in range(0, len(head), 5000):
            writer.write(head[at : at + 5000])
            await writer.drain()
        assert await _status(reader) == 431


async def test_each_request_of_a_connection_has_its_own_head() -> None:
    async with _connected("metrics") as (reader, writer):
        for _ in range(3):
            writer.write(_head(60 * _KIB))
            assert await _status(reader) == 200
            await reader.readuntil(b"x 1\n")


async def test_head_behind_a_body_is_counted() -> None:
    """The first request is answered before the second one is refused."""
    body = b'{"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}'
    first = f"POST {_INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    async with _connected() as (reader, writer):
        writer.write(first + body + _head(70 * _KIB))
        answers = await _ended(reader)
    assert answers.startswith(b"HTTP/1.1 200 ")
    assert answers.count(b"HTTP/1.1 ") == answers.count(b"HTTP/1.1 431 ") + 1 == 2


@pytest.mark.parametrize("end", [b"0\r\nx: ", b"1;x="], ids=["trailer", "extension"])
async def test_what_stands_between_and_behind_chunks_is_counted(end: bytes) -> None:
    head = f"POST {_INFER} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    async with _connected() as (reader, writer):
        writer.write(head + end)
        writer.write(bytes(b"x" * (1 << 20)))
        assert await _status(reader) == 431


@_PORTS
async def test_endless_header_line_is_refused_while_others_are_answered(port_of: str) -> None:
    """All that is looked at are its first 64 KiB."""
    async with _open(port_of, HttpLimits()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        flooding = asyncio.create_task(_flood(writer))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as other:
            answers = [await other.get("/metrics") for _ in range(20)]
        assert await _status(reader) == 431
        await asyncio.wait_for(flooding, _PATIENCE)
        await hang_up(writer)
    assert len(answers) == 20


async def _flood(writer: asyncio.StreamWriter) -> None:
    """Send one header line, until the server ends the connection."""
    writer.write(b"GET / HTTP/1.1\r\nhost: ")
    with suppress(ConnectionError):
        while True:
            writer.write(b"x" * (1 << 18))
            await writer.drain()
            await asyncio.sleep(0.01)
    await hang_up(writer)


async def test_what_is_no_http_is_refused() -> None:
    async with _connected() as (reader, writer):
        writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        assert await _status(reader) == 400
        await _ended(reader)


# -- time -----------------------------------------------------------------------------------------

_BRIEF = HttpLimits(opening=0.2, body_period=0.2, idle=0.2)


@_PORTS
async def test_client_that_says_nothing_is_left(port_of: str) -> None:
    async with _connected(port_of, HttpLimits(opening=0.2)) as (reader, _):
        assert await _ended(reader) == b""


@_PORTS
async def test_slow_head_is_refused_with_a_timeout(port_of: str) -> None:
    async with _connected(port_of, HttpLimits(opening=0.5)) as (reader, writer):
        trickle = asyncio.create_task(_trickle(writer, b"GET / HTTP/1.1\r\nhost: "))
        assert await _status(reader) == 408
        await _ended(reader)
        await trickle


async def test_slow_body_is_refused_with_a_timeout() -> None:
    head = f"POST {_INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n".encode()
    async with _connected(limits=HttpLimits(body_period=0.5)) as (reader, writer):
        trickle = asyncio.create_task(_trickle(writer, head))
        assert await _status(reader) == 408
        await _ended(reader)
        await trickle


async def _trickle(writer: asyncio.StreamWriter, beginning: bytes) -> None:
    """Send a byte every now and then, until the server has had enough."""
    try:
        writer.write(beginning)
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)
    except ConnectionError:
        pass


async def test_body_that_the_server_has_refused_has_its_time_too() -> None:
    head = f"POST {_INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000000\r\n\r\n".encode()
    async with _connected(limits=HttpLimits(body_period=0.5)) as (reader, writer):
        writer.write(head)
        assert await _status(reader) == 400
        await _ended(reader)


@_PORTS
async def test_idle_connection_is_closed(port_of: str) -> None:
    async with _connected(port_of, HttpLimits(idle=0.2)) as (reader, writer):
        writer.write(_head(100))
        assert await _status(reader) in (200, 404)
        await _ended(reader)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (_INFER, {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}),
        ("/v2/models/numbers/generate_stream", {"IN": 1.0}),
    ],
)
async def test_connection_that_waits_for_an_answer_is_not_idle(
    path: str, body: dict[str, object]
) -> None:
    """Neither a long inference nor a stream of events is idle."""
    server = SilentServer()
    async with (
        open_gateway(server, LOCAL, ExitDeadline(1), ConnectionRules(_BRIEF)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as client,
    ):
        asking = asyncio.create_task(client.post(path, json=body))
        _, stream = await asyncio.wait_for(server.asked.get(), _PATIENCE)
        for _ in range(3):  # which have as much time as an idle one
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await _ended(reader)
            await hang_up(writer)
        stream.send(InferenceResponse(final=True))
        assert (await asyncio.wait_for(asking, _PATIENCE)).status_code == 200
