"""Clients that read nothing of their answers, and those that do so by and by."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.serving import LOCAL, FakeServer
from harness.raw_clients import hang_up
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import DataType, Tensor
from penstock.gateway.app import open_gateway
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.connections.listener import listening
from penstock.gateway.connections.open_connections import ConnectionRules
from penstock.gateway.replies import reply
from penstock.http1.limits import HttpLimits
from penstock.system.fd_reserve import DescriptorReserve
from rpc.certificates import needs_openssl, tls, write_certificates

_PATIENCE = 20.0
_LARGE = 32 << 20
"""Bytes of an answer that no socket's buffers hold."""


class _Closed(DescriptorReserve):
    """Tells when a connection is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def released(self, transport: asyncio.BaseTransport) -> None:
        super().released(transport)
        self.event.set()


class _Endless(FakeServer):
    """Sends one response after another, as fast as they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def answer(self, request: InferenceRequest, stream: ResponseStream) -> None:
        self._tasks.append(asyncio.create_task(self._send(stream)))

    async def _send(self, stream: ResponseStream) -> None:
        text = Tensor(DataType.FP32, [1000], bytes(4000))
        while not stream.ended:
            stream.send(InferenceResponse({"OUT": text}))
            await stream.room()
            await asyncio.sleep(0)
        self.cancelled.set()


async def test_stream_of_events_that_nobody_reads_is_cancelled() -> None:
    server, rules = _Endless(), ConnectionRules(HttpLimits(sending=0.2))
    async with open_gateway(server, LOCAL, ExitDeadline(1), rules) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(_post("/v2/models/numbers/generate_stream", b'{"IN": 1.0}'))
            await asyncio.wait_for(server.cancelled.wait(), _PATIENCE)


def _post(path: str, body: bytes) -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def _unread(limits: HttpLimits, head: bytes) -> AsyncIterator[tuple[socket.socket, _Closed]]:
    """A client that has asked for a large answer, and what tells that its connection is closed."""
    closed = _Closed()
    rules = ConnectionRules(limits, closed)
    async with listening(_large, "HTTP", "127.0.0.1", 0, ExitDeadline(1), rules) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setblocking(False)
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n")
            yield client, closed


def _large(call: HttpCall) -> None:
    call.send(reply(b"x" * _LARGE))


@pytest.mark.interpreted("its reserve is derived from the server's, which is compiled")
@pytest.mark.parametrize("head", [b"connection: close\r\n", b""], ids=["last", "idle"])
async def test_answer_that_nobody_reads_does_not_keep_its_connection(head: bytes) -> None:
    """Neither of the last request, nor of one behind which the connection is idle for long."""
    limits = HttpLimits(sending=0.2, idle=0.1)
    async with _unread(limits, head) as (_, closed):
        await asyncio.wait_for(closed.event.wait(), _PATIENCE)


@pytest.mark.interpreted("its reserve is derived from the server's, which is compiled")
async def test_answer_is_whole_for_a_client_that_reads_late() -> None:
    """The server has long closed what it has answered."""
    limits = HttpLimits(sending=_PATIENCE, idle=0.1, opening=0.5)
    async with _unread(limits, b"") as (client, _):
        reader, writer = await asyncio.open_connection(*client.getpeername())
        assert await reader.read() == b"", "another one, which has longer than an idle one"
        await hang_up(writer)
        received, loop = 0, asyncio.get_running_loop()
        while data := await asyncio.wait_for(loop.sock_recv(client, 1 << 20), _PATIENCE):
            received += len(data)
    assert received > _LARGE


@needs_openssl
async def test_tls_client_that_says_no_goodbye_does_not_delay_the_end(tmp_path: Path) -> None:
    """As clients do whose connections wait in a pool that nobody looks at."""
    certificates = write_certificates(tmp_path)
    context = ssl.create_default_context(cafile=str(certificates / "root.pem"))
    settings = replace(LOCAL, tls=tls(certificates))

    def ask(port: int) -> ssl.SSLSocket:
        plain = socket.create_connection(("localhost", port))
        client = context.wrap_socket(plain, server_hostname="localhost")
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        return client

    async with asyncio.timeout(_PATIENCE):
        async with open_gateway(FakeServer(), settings, ExitDeadline(600)) as port:
            client = await asyncio.to_thread(ask, port)
        client.close()
