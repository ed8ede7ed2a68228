"""Clients that do not speak gRPC, or not in time."""

from __future__ import annotations

import asyncio
import gc
import shutil
import ssl
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest

from harness.raw_clients import hang_up
from hosting.puppets import eventually
from penstock.core.exit_deadline import ExitDeadline
from penstock.http2 import frames
from penstock.http2.frames import ErrorCode
from penstock.http2.keepalive import ConnectionAges
from penstock.rpc.native.call import UnaryCall
from penstock.rpc.native.transport import open_native
from penstock.settings import GrpcSettings, KeepaliveSettings
from rpc.certificates import tls, write_certificates
from rpc.native.wire import LOCAL, PATIENCE, Handlers, head, until


@pytest.mark.parametrize(("method", "status"), [("GET", b"415"), ("HEAD", b"415")])
async def test_request_that_is_not_grpc_is_answered_in_plain_text(
    method: str, status: bytes
) -> None:
    async with open_native([], LOCAL, ExitDeadline(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        client.initiate_connection()
        client.send_headers(1, [(":method", method), *head("/")[1:4]], end_stream=True)
        answer = await until(client, reader, writer, h2.events.ResponseReceived)
        assert dict(answer.headers)[b":status"] == status
        await hang_up(writer)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
async def test_client_that_does_not_ask_for_http2_is_not_served(tmp_path: Path) -> None:
    settings = GrpcSettings(address="127.0.0.1", port=0, tls=tls(write_certificates(tmp_path)))
    plain = ssl.create_default_context(cafile=str(tmp_path / "root.pem"))
    async with open_native([], settings, ExitDeadline(0)) as port:
        reader, writer = await asyncio.open_connection("localhost", port, ssl=plain)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), PATIENCE)
        await hang_up(writer)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
async def test_handshake_has_its_time(tmp_path: Path) -> None:
    """Whoever connects and says nothing is not waited for, with TLS as without."""
    settings = GrpcSettings(address="127.0.0.1", port=0, tls=tls(write_certificates(tmp_path)))
    brief = ConnectionAges(opening=0.1)
    async with open_native([], settings, ExitDeadline(0), ages=brief) as port:
        reader, writer = await asyncio.open_connection("localhost", port)
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        await hang_up(writer)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
async def test_handshakes_end_with_the_listener(tmp_path: Path) -> None:
    """They are broken off: their time is not waited for."""
    settings = GrpcSettings(address="127.0.0.1", port=0, tls=tls(write_certificates(tmp_path)))
    tasks = len(asyncio.all_tasks())
    long = ConnectionAges(opening=600)
    async with open_native([], settings, ExitDeadline(0), ages=long) as port:
        reader, writer = await asyncio.open_connection("localhost", port)
        await eventually(lambda: len(asyncio.all_tasks()) > tasks)  # the handshake has begun
    assert len(asyncio.all_tasks()) == tasks
    assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
    await hang_up(writer)


@pytest.mark.parametrize("missing", [0, 1], ids=["block", "frame"])
async def test_header_block_has_its_time(missing: int) -> None:
    """Also when it is the frame that holds it that does not come to its end."""
    block = frames.frame(frames.FrameType.HEADERS, 0, 1, bytes(30_000))
    async with open_native([], LOCAL, ExitDeadline(0), ages=ConnectionAges(opening=0.1)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frames.PREFACE + frames.settings([]) + block[: len(block) - missing])
        await asyncio.wait_for(reader.read(), PATIENCE)
        await hang_up(writer)


@pytest.mark.parametrize("sent", [[], [b"\0\0\0"], [b"\0\0\0\0\x09half"]])
async def test_request_incomplete_at_its_deadline_is_refused(sent: list[bytes]) -> None:
    async with open_native([Handlers().service()], LOCAL, ExitDeadline(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        client.initiate_connection()
        client.send_headers(1, [*head("/s/echo"), ("grpc-timeout", "50m")])
        for data in sent:
            client.send_data(1, data)
        answer = await until(client, reader, writer, h2.events.ResponseReceived)
        assert dict(answer.headers)[b"grpc-status"] == b"4"
        await hang_up(writer)


@pytest.mark.parametrize("apart", [False, True])
async def test_call_refused_before_its_request_is_complete_is_released(apart: bool) -> None:
    """No timer keeps it, and its connection, until a deadline that may be years away."""
    before = _calls()
    async with open_native([Handlers().service()], LOCAL, ExitDeadline(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        client.initiate_connection()
        client.send_headers(1, [*head("/s/echo"), ("grpc-timeout", "1000H")])
        if apart:
            client.ping(b"are you?")
            await until(client, reader, writer, h2.events.PingAckReceived)
            assert _calls() == before + 1
        client.send_data(1, b"\0\xff\xff\xff\xff")  # longer than any message may be
        answer = await until(client, reader, writer, h2.events.ResponseReceived)
        assert dict(answer.headers)[b"grpc-status"] == b"8"
        await hang_up(writer)
    assert _calls() == before


def _calls() -> int:
    gc.collect()
    return sum(isinstance(thing, UnaryCall) for thing in gc.get_objects())


async def test_old_connection_is_drained_and_closed() -> None:
    keepalive = KeepaliveSettings(max_connection_age_ms=100)
    settings = GrpcSettings(address="127.0.0.1", port=0, keepalive=keepalive)
    async with open_native([], settings, ExitDeadline(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frames.PREFACE + frames.settings([]))
        leave = frames.goaway(frames.LARGEST_ID, ErrorCode.NO_ERROR) + frames.ping(b"draining")
        await asyncio.wait_for(reader.readuntil(leave), PATIENCE)
        writer.write(frames.ping(b"draining", ack=True))
        last = frames.goaway(0, ErrorCode.NO_ERROR)
        assert await asyncio.wait_for(reader.read(), PATIENCE) == last
        await hang_up(writer)
