"""Requests whose head and body come apart, as many clients send them."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.connections.wire import Transport, Wire, wired_to
from gateway.serving import LOCAL, FakeServer
from penstock.gateway.app import gateway_router
from penstock.gateway.json.helper import JsonHelper

_JSON = b'{"inputs": [{"name": "IN", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}'
_BINARY = (
    b'{"inputs": [{"name": "IN", "datatype": "FP32", "shape": [2],'
    b' "parameters": {"binary_data_size": 8}}]}'
)
_LENGTH = b"inference-header-content-length: %d\r\n"


def _head(size: int, fields: bytes = b"") -> bytes:
    line = b"POST /v2/models/numbers/infer HTTP/1.1\r\nhost: x\r\n"
    return line + b"content-length: %d\r\n%b\r\n" % (size, fields)


@asynccontextmanager
async def _wired(server: FakeServer) -> AsyncIterator[tuple[Wire, Transport]]:
    helper = JsonHelper()
    router = gateway_router(server, LOCAL, helper)
    async with wired_to(router.start) as wired:
        yield wired
    helper.close()


def _statuses(transport: Transport) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", transport.written)]


@pytest.mark.parametrize(
    ("body", "fields"), [(_JSON, b""), (_BINARY + bytes(8), _LENGTH % len(_BINARY))]
)
@pytest.mark.parametrize("size", [1, 40, 1000])
async def test_answer_is_written_in_the_read_that_ends_the_body(
    body: bytes, fields: bytes, size: int
) -> None:
    """Nothing waits: there is no task."""
    async with _wired(FakeServer()) as (wire, transport):
        wire.deliver(_head(len(body), fields))
        for at in range(0, len(body), size):
            assert transport.written == b""
            wire.deliver(body[at : at + size])
        assert _statuses(transport) == [200]
        assert b'"shape":[2]' in transport.written


async def test_requests_behind_are_answered_in_their_order() -> None:
    async with _wired(FakeServer()) as (wire, transport):
        wire.deliver(_head(len(_JSON)))
        wire.deliver(_JSON + b"GET /v2/nothing HTTP/1.1\r\nhost: x\r\n\r\n" + b"no request")
        assert _statuses(transport) == [200, 404, 400]


async def test_error_is_an_answer_and_the_connection_goes_on() -> None:
    async with _wired(FakeServer()) as (wire, transport):
        for body in (b"{}", _JSON):
            wire.deliver(_head(len(body)))
            wire.deliver(body)
        assert _statuses(transport) == [500, 200]


async def test_body_of_another_form_is_left_to_the_handler() -> None:
    body, server = gzip.compress(_JSON), FakeServer()
    async with _wired(server) as (wire, transport):
        wire.deliver(_head(len(body), b"content-encoding: gzip\r\n"))
        wire.deliver(body)
        assert _statuses(transport) == [200]


async def test_client_that_waits_to_be_asked_for_the_body_is_asked() -> None:
    async with _wired(FakeServer()) as (wire, transport):
        wire.deliver(_head(len(_JSON), b"expect: 100-continue\r\n"))
        assert _statuses(transport) == [100]
        wire.deliver(_JSON)
        async with asyncio.timeout(30):
            while len(_statuses(transport)) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert _statuses(transport) == [100, 200]


async def test_who_leaves_before_the_end_has_asked_nothing() -> None:
    server = FakeServer()
    async with _wired(server) as (wire, transport):
        wire.deliver(_head(len(_JSON)) + _JSON[:5])
    assert server.requests == []
    assert transport.written == b""


async def test_server_that_ends_refuses_what_has_come_in_part() -> None:
    server = FakeServer()
    async with _wired(server) as (wire, transport):
        wire.deliver(_head(len(_JSON)) + _JSON[:5])
        wire.protocol.drain()
        assert _statuses(transport) == [503]
    assert server.requests == []
