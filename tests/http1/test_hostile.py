"""Requests with faults that other servers have understood otherwise, through the HTTP port."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus

import pytest

from gateway.serving import LOCAL, FakeServer
from harness.raw_clients import hang_up
from http1.fuzzing.faults import FAULTS
from http1.fuzzing.responses import Response, read_responses
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway

_PATIENCE = 30.0
_INFER = b"/v2/models/numbers/infer"
_LIVE = b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n"
_BODY = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1],"data":[1]}]}'


@pytest.fixture
async def port(server: FakeServer) -> AsyncIterator[int]:
    """The HTTP port of `server`."""
    async with open_gateway(server, LOCAL, ExitDeadline(1)) as port:
        yield port


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


def _post(*fields: bytes, body: bytes = b"", version: bytes = b"1.1") -> bytes:
    head = (b"POST %b HTTP/%b" % (_INFER, version), b"host: x", *fields, b"", body)
    return b"\r\n".join(head)


async def _talk(port: int, *pieces: bytes) -> list[Response]:
    """What the server answers to these bytes, until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reading = asyncio.create_task(reader.read())
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass  # the server has heard enough
    received = await asyncio.wait_for(reading, _PATIENCE)
    await hang_up(writer)
    return read_responses(received, ended=True)[0]


def _statuses(responses: list[Response]) -> list[int]:
    return [response.status for response in responses]


@pytest.mark.contract("SEC-04")
@pytest.mark.parametrize("fault", FAULTS)
async def test_fault_is_refused_and_nothing_behind_it_is_answered(
    fault: str, port: int, server: FakeServer
) -> None:
    """The request before it is, and says that it is the last, unless the refusal says so."""
    data = FAULTS[fault].replace(b"/now/0", _INFER)
    live, *refusals = await _talk(port, _LIVE + data + _LIVE)
    assert live.status == 200
    assert len(refusals) == (not live.ends)
    assert {*_statuses(refusals)} <= {400, 505}
    assert not server.requests


@pytest.mark.contract("H-27")
@pytest.mark.parametrize("fault", FAULTS)
async def test_fault_is_refused_also_byte_by_byte(
    fault: str, port: int, server: FakeServer
) -> None:
    data = FAULTS[fault].replace(b"/now/0", _INFER) + _LIVE
    (refusal,) = await _talk(port, *(data[at : at + 1] for at in range(len(data))))
    assert refusal.status in (400, 505)
    assert refusal.ends
    assert refusal.fields[b"content-type"] == b"application/json"
    assert json.loads(refusal.body) == {"error": HTTPStatus(refusal.status).phrase}
    assert not server.requests


@pytest.mark.parametrize(
    "target",
    [b"http://x" + _INFER, b"http://user@y:80" + _INFER, b"HTTP://[::1]:8000" + _INFER],
)
async def test_target_may_be_a_whole_uri(target: bytes, port: int, server: FakeServer) -> None:
    """RFC 9112, section 3.2.2: it counts more than the Host field."""
    request = b"POST %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" % target
    (answer,) = await _talk(port, request + b"content-length: %d\r\n\r\n%b" % (len(_BODY), _BODY))
    assert answer.status == 200
    assert len(server.requests) == 1


async def test_equal_lengths_in_different_places_are_refused_too(port: int) -> None:
    """A proxy before us may have counted but one of them."""
    length = b"content-length: %d" % len(_BODY)
    (refusal,) = await _talk(port, _post(length, length, body=_BODY))
    assert refusal.status == 400


async def test_chunks_may_have_extensions_and_trailers(port: int, server: FakeServer) -> None:
    """They are dropped: trailers do not become header fields."""
    body = b'%x;a="b;\t c";d\r\n%b\r\n0;e\r\nhost: y\r\nx: y\r\n\r\n' % (
        len(_BODY),
        _BODY,
    )
    request = _post(b"transfer-encoding: chunked", body=body)
    end = _LIVE.replace(b"host", b"connection: close\r\nhost")
    assert _statuses(await _talk(port, request + end)) == [200, 200]
    assert len(server.requests) == 1


async def test_upgrade_that_is_not_spoken_is_ignored(port: int) -> None:
    """As curl asks with --http2."""
    upgrade = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n"
    end = _LIVE.replace(b"host", b"connection: close\r\nhost")
    answers = await _talk(port, _LIVE.replace(b"host", upgrade + b"host") + end)
    assert _statuses(answers) == [200, 200]


async def test_tunnel_is_refused(port: int) -> None:
    (refusal,) = await _talk(port, b"CONNECT x:443 HTTP/1.1\r\nhost: x:443\r\n\r\n" + _LIVE)
    assert refusal.status >= 400


# -- bombs ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.contract("HI-17")
@pytest.mark.parametrize(
    ("coding", "bomb"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
    ],
)
async def test_body_that_unfolds_a_thousandfold_is_refused(
    coding: str, bomb: Callable[[bytes], bytes], port: int, server: FakeServer
) -> None:
    """Of 80 MiB of zeros in 80 KiB no more than the limit is unfolded."""
    body = bomb(bytes(80 << 20))
    assert len(body) < 100 << 10
    fields = b"content-encoding: %b\r\nconnection: close" % coding.encode()
    (answer,) = await _talk(port, _post(fields, b"content-length: %d" % len(body), body=body))
    assert answer.status == 400
    assert json.loads(answer.body)["error"].startswith("decompressed request size exceeds")
    assert not server.requests


@pytest.mark.contract("H-37")
@pytest.mark.parametrize(("chunks", "status"), [(65_536, 200), (65_537, 400)])
async def test_chunks_of_a_byte_are_taken_up_to_a_number(
    chunks: int, status: int, port: int
) -> None:
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in _BODY.ljust(chunks))
    request = _post(b"transfer-encoding: chunked", b"connection: close", body=body + b"0\r\n\r\n")
    (answer,) = await _talk(port, request)
    assert answer.status == status


@pytest.mark.contract("N-14")
async def test_too_many_chunks_are_refused_with_what_to_do(port: int) -> None:
    body = b"1\r\n \r\n" * 65_537 + b"0\r\n\r\n"
    (answer,) = await _talk(port, _post(b"transfer-encoding: chunked", body=body))
    assert json.loads(answer.body)["error"] == (
        "Chunked request body exceeds maximum of 65536 non-empty chunks."
        " Send fewer or larger HTTP chunks."
    )


# -- clients that go ------------------------------------------------------------------------------


def _reset(port: int, data: bytes) -> None:
    """Send, and reset the connection."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(data)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("framing", [b"content-length: 100000", b"transfer-encoding: chunked"])
async def test_bodies_that_stop_half_way_leave_nothing_behind(
    framing: bytes, port: int, server: FakeServer
) -> None:
    """Neither a request, nor a connection, nor a task."""
    await _talk(port, _LIVE.replace(b"host", b"connection: close\r\nhost"))
    before, tasks = _open_files(), len(asyncio.all_tasks())
    for _ in range(100):
        await asyncio.to_thread(_reset, port, _post(framing, body=b"20\r\n" + b" " * 30))
    (answer,) = await _talk(port, _LIVE.replace(b"host", b"connection: close\r\nhost"))
    assert answer.status == 200
    async with asyncio.timeout(_PATIENCE):
        while _open_files() > before or len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not server.requests
