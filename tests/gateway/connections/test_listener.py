"""The HTTP listener: port errors and graceful shutdown."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from fakes import turns, until
from gateway.serving import SilentServer
from harness.raw_clients import hang_up
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.gateway.app import open_gateway
from penstock.gateway.connections.http_call import ClientDisconnectError, HttpCall
from penstock.gateway.connections.listener import listening
from penstock.gateway.replies import reply
from penstock.settings import HttpSettings

_LOCAL = HttpSettings(address="127.0.0.1", port=0)
_STREAM = "/v2/models/numbers/generate_stream"


Handling = Callable[[HttpCall], Coroutine[Any, Any, None]]


def _hello(call: HttpCall) -> None:
    call.send(reply(b"hello"))


async def test_port_in_use_is_reported_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="already in use") as refused:
            async with listening(_hello, "HTTP", "127.0.0.1", port, ExitDeadline(1)):
                pass
    text = f"failed to start HTTP service: Unavailable - Socket '127.0.0.1:{port}' already in use"
    assert str(refused.value) == text


@pytest.mark.parametrize("address", ["192.0.2.1", "no-such-host.invalid"])
async def test_foreign_address_is_reported_in_one_line(address: str) -> None:
    with pytest.raises(OSError, match=f"^failed to start HTTP service: .*'{address}:0': .+"):
        async with listening(_hello, "HTTP", address, 0, ExitDeadline(1)):
            pass


@pytest.mark.contract("H-31")
async def test_addresses_may_be_ipv6() -> None:
    async with (
        listening(_hello, "HTTP", "ipv6:[::1]", 0, ExitDeadline(1)) as port,
        httpx.AsyncClient(verify=False) as client,
    ):
        assert (await client.get(f"http://[::1]:{port}/")).text == "hello"


@pytest.mark.contract("H-31")
async def test_port_can_be_shared() -> None:
    async with (
        listening(_hello, "HTTP", "127.0.0.1", 0, ExitDeadline(1), reuse_port=True) as port,
        listening(_hello, "HTTP", "127.0.0.1", port, ExitDeadline(1), reuse_port=True) as other,
    ):
        assert other == port


@pytest.mark.contract("H-34")
async def test_idle_connections_do_not_delay_the_end() -> None:
    async with (
        httpx.AsyncClient(verify=False) as client,
        asyncio.timeout(60),
        listening(_hello, "HTTP", "127.0.0.1", 0, ExitDeadline(600)) as port,
    ):
        await client.get(f"http://127.0.0.1:{port}/")


async def _fails_at_once(_: HttpCall) -> None:
    raise ValueError("secret")


async def _fails_later(call: HttpCall) -> None:
    await asyncio.sleep(0)
    await _fails_at_once(call)


async def _fails_half_way(call: HttpCall) -> None:
    call.begin(200, [])
    call.write_nowait(b"hello")
    await _fails_later(call)


@pytest.mark.parametrize("failing", [_fails_at_once, _fails_later])
async def test_fault_of_a_handler_is_answered_and_its_connection_stays(
    failing: Handling, caplog: pytest.LogCaptureFixture
) -> None:
    def start(call: HttpCall) -> None:
        call.run(failing(call)) if call.path == "/fault" else _hello(call)

    async with (
        listening(start, "HTTP", "127.0.0.1", 0, ExitDeadline(1)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as client,
    ):
        failed, other = await client.get("/fault"), await client.get("/")
    text = "unexpected error, see the server's log"
    assert (failed.status_code, failed.json()) == (500, {"error": text})
    assert other.text == "hello"
    assert "ValueError: secret" in caplog.text


async def test_fault_behind_the_head_breaks_the_answer_off() -> None:
    """Its client sees that the end is missing."""
    async with (
        listening(
            lambda call: call.run(_fails_half_way(call)), "HTTP", "127.0.0.1", 0, ExitDeadline(1)
        ) as port,
        httpx.AsyncClient(verify=False) as client,
    ):
        with pytest.raises(httpx.TransportError):
            await client.get(f"http://127.0.0.1:{port}/")


async def test_handler_that_is_cancelled_breaks_its_answer_off() -> None:
    """Its client would wait for the rest for ever."""

    async def answer(call: HttpCall) -> None:
        call.begin(200, [])
        call.write_nowait(b"hello")
        raise asyncio.CancelledError

    async def later(call: HttpCall) -> None:
        await asyncio.sleep(0)
        await answer(call)

    async with listening(
        lambda call: call.run(later(call)), "HTTP", "127.0.0.1", 0, ExitDeadline(1)
    ) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        text = await asyncio.wait_for(reader.read(), 20)
        await hang_up(writer)
    assert text.endswith(b"hello\r\n")


@asynccontextmanager
async def _asking(
    port: int, server: SilentServer
) -> AsyncIterator[tuple[asyncio.StreamReader, ResponseStream]]:
    """The connection of a client whose request has reached the server, and its responses."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"IN": 1.0}'
    head = f"POST {_STREAM} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    _, stream = await server.asked.get()
    try:
        yield reader, stream
    finally:
        await hang_up(writer)


async def test_running_stream_may_finish_while_new_clients_are_refused() -> None:
    server = SilentServer()
    gateway = open_gateway(server, _LOCAL, ExitDeadline(10))
    port = await gateway.__aenter__()
    async with _asking(port, server) as (reader, stream):
        closing = asyncio.create_task(gateway.__aexit__(None, None, None))
        await turns()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        stream.send(InferenceResponse())
        text = await reader.readuntil(b"data: ")
        assert not closing.done()
        stream.end()
        await asyncio.wait_for(closing, 20)
        text += await reader.read()
    assert b"connection: close" in text
    assert text.endswith(b"0\r\n\r\n")


async def test_stream_that_does_not_finish_is_cancelled_after_the_grace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = SilentServer()
    async with AsyncExitStack() as stack:
        async with open_gateway(server, _LOCAL, ExitDeadline(0.2)) as port:
            reader, stream = await stack.enter_async_context(_asking(port, server))
        assert stream.ended
        assert await reader.read() == b""
    assert caplog.messages == []


_BODY = b'{"IN": 1.0}'
_HALVES = {
    "head": b"GET / HTTP/1.1\r\nhost",
    "body": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{",
    "large body": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n{",
    "chunk": b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n9\r\n{",
}


async def _take(call: HttpCall) -> None:
    with suppress(ClientDisconnectError):
        await call.body_until(1 << 30)
        call.send(reply(b"hello"))


@pytest.mark.parametrize("half", _HALVES)
async def test_half_a_request_does_not_delay_the_end(half: str) -> None:
    """It is refused, so that its client knows that nothing of it was done."""
    async with asyncio.timeout(60):
        async with listening(
            lambda call: call.run(_take(call)), "HTTP", "127.0.0.1", 0, ExitDeadline(600)
        ) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /1 HTTP/1.1\r\nhost: x\r\n\r\n" + _HALVES[half])
            await reader.readuntil(b"hello")
            await turns()
        answer = await reader.read()
        await hang_up(writer)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.slow
async def test_client_that_sends_its_body_at_the_end_reads_that_it_is_refused() -> None:
    """It looks for the answer only when it has sent all, as most clients do.

    So it has more time than another one, which sends nothing any more.
    """
    begun: asyncio.Queue[None] = asyncio.Queue()

    async def take(call: HttpCall) -> None:
        begun.put_nowait(None)
        await _take(call)

    async with AsyncExitStack() as stack:
        start = listening(
            lambda call: call.run(take(call)), "HTTP", "127.0.0.1", 0, ExitDeadline(600)
        )
        port = await stack.enter_async_context(start)
        head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        other, other_writer = await asyncio.open_connection("127.0.0.1", port)
        for one in (writer, other_writer):
            one.write(head)
            await begun.get()
        closing = asyncio.create_task(stack.pop_all().aclose())
        refused = asyncio.create_task(other.read())
        while not refused.done():
            writer.write(b"%x\r\n%b\r\n" % (100_000, bytes(100_000)))
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.write(b"0\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 20)
        await hang_up(writer)
        await hang_up(other_writer)
        await asyncio.wait_for(closing, 20)
    assert answer.startswith(b"HTTP/1.1 503 ")


def _refuses(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


async def test_half_a_request_behind_a_stream_does_not_break_it() -> None:
    server = SilentServer()
    gateway = open_gateway(server, _LOCAL, ExitDeadline(600))
    port = await gateway.__aenter__()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {_STREAM} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(_BODY)}\r\n\r\n"
    writer.write(head.encode() + _BODY + _HALVES["body"])
    _, stream = await server.asked.get()
    stream.send(InferenceResponse())
    await reader.readuntil(b"data: ")
    closing = asyncio.create_task(gateway.__aexit__(None, None, None))
    await until(lambda: _refuses(port))
    assert not closing.done()
    stream.end()
    await asyncio.wait_for(closing, 20)
    text = await reader.read()
    await hang_up(writer)
    assert b"0\r\n\r\nHTTP/1.1 503 " in text
