"""Many requests sent at once on one connection, and bodies of many chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.connection import ConnectionRules, HttpProtocol
from penstock.gateway.listener import listening
from penstock.gateway.unparsed import Unparsed

_PATIENCE = 30.0
_TURNS = 200_000
_MANY = 2000


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the path and the length of the body."""
    length, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        length, more = length + len(message["body"]), message["more_body"]
    text = f"<{scope['path']} {length}>".encode()
    headers = [(b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def _get(number: int) -> bytes:
    return b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n" % number


def _post(number: int, body: bytes, *, chunk: int = 0) -> bytes:
    """A request with a body, in chunks of some size if one is given."""
    head = b"POST /%d HTTP/1.1\r\nhost: a\r\n" % number
    if not chunk:
        return head + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    parts = [body[at : at + chunk] for at in range(0, len(body), chunk)]
    coded = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return head + b"transfer-encoding: chunked\r\n\r\n" + coded + b"0\r\n\r\n"


# -- the protocol on a transport that only records ------------------------------------------------


class _Transport(asyncio.Transport):
    """What the protocol asks of its transport."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.reading = True
        self.closed = False

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.written += data

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class _Counting(HttpProtocol):
    """Counts what its parser reports."""

    heads = 0
    parts = 0

    def on_headers_complete(self) -> None:
        self.heads += 1
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.parts += 1
        super().on_body(body)


@asynccontextmanager
async def _wired(app: ASGIApp) -> AsyncIterator[tuple[_Counting, _Transport]]:
    config = Config(app, lifespan="off", interface="asgi3", ws="none", log_config=None)
    config.load()
    state = ServerState()
    protocol, transport = _Counting(config, state, ConnectionRules(), lambda: None), _Transport()
    protocol.connection_made(transport)
    try:
        yield protocol, transport
    finally:
        protocol.connection_lost(None)
        async with asyncio.timeout(_PATIENCE):
            await asyncio.gather(*state.tasks)


async def _until(condition: Callable[[], bool]) -> None:
    """Give turns to the loop until the condition holds."""
    for _ in range(_TURNS):
        if condition():
            return
        await asyncio.sleep(0)
    pytest.fail("it never holds")


async def test_few_requests_are_parsed_before_the_first_is_answered() -> None:
    answering = asyncio.Event()

    async def held(scope: Scope, receive: Receive, send: Send) -> None:
        await answering.wait()
        await _echo(scope, receive, send)

    async with _wired(held) as (protocol, transport):
        protocol.data_received(b"".join(map(_get, range(_MANY))))
        for _ in range(50):
            await asyncio.sleep(0)
        assert 2 <= protocol.heads <= 18
        assert not transport.reading
        answering.set()


async def test_each_turn_parses_few_heads_and_bytes_wait_unread() -> None:
    async with _wired(_echo) as (protocol, transport):
        protocol.data_received(b"".join(map(_get, range(_MANY))))
        while protocol.heads < _MANY:
            before = protocol.heads
            assert len(protocol.pipeline) <= 17
            assert not transport.reading
            await asyncio.sleep(0)
            assert protocol.heads - before <= 18
        await _until(lambda: transport.written.count(b">") == _MANY and transport.reading)
    assert _answers(transport.written) == [(number, 0) for number in range(_MANY)]


@pytest.mark.parametrize("early", [False, True], ids=["wanted", "unwanted"])
async def test_each_turn_parses_few_chunks(early: bool) -> None:
    """Whether the body is read, or was answered before it came."""

    async def unread(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"<>"})

    request = _post(1, b" " * 20_000, chunk=1)
    async with _wired(unread if early else _echo) as (protocol, transport):
        protocol.data_received(request[:60])
        await asyncio.sleep(0)
        protocol.data_received(request[60:])
        assert protocol.parts < 2000
        assert not transport.reading
        while protocol.parts < 20_000:
            before = protocol.parts
            await asyncio.sleep(0)
            assert protocol.parts - before < 2000
        await _until(lambda: b">" in transport.written and transport.reading)


async def test_body_of_known_length_is_parsed_at_once() -> None:
    request = _post(1, bytes(200_000))
    async with _wired(_echo) as (protocol, transport):
        protocol.data_received(request)
        assert protocol.parts == 1
        await _until(lambda: b">" in transport.written)


async def test_body_of_a_request_that_waits_is_bounded() -> None:
    answering = asyncio.Event()

    async def held(scope: Scope, receive: Receive, send: Send) -> None:
        await answering.wait()
        await _echo(scope, receive, send)

    async with _wired(held) as (protocol, transport):
        protocol.data_received(_get(0) + _post(1, bytes(1 << 20))[: 100 << 10])
        protocol.flow.resume_reading()  # as a handler does that looks for the client's end
        assert not transport.reading
        answering.set()
        await _until(lambda: transport.reading)


async def test_client_that_goes_is_reported_to_the_request_in_progress() -> None:
    """Also where further requests were parsed behind it."""
    seen: list[str] = []

    async def watching(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        seen.append((await receive())["type"])

    async with _wired(watching) as (protocol, _):
        protocol.data_received(_get(0) + _get(1))
        await asyncio.sleep(0)
    assert seen == ["http.disconnect"]


# -- through a listener ---------------------------------------------------------------------------


def _answers(received: bytes) -> list[tuple[int, int]]:
    """The number and the length of the body of each answer, in their order."""
    found = [part.split(b">")[0].split() for part in received.split(b"<")[1:]]
    return [(int(path[1:]), int(length)) for path, length in found]


async def _exchange(pieces: list[bytes]) -> bytes:
    """Send all, end this side, and read to the end."""
    async with listening(_echo, "HTTP", "127.0.0.1", 0, ExitDeadline(1)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        reading = asyncio.create_task(reader.read())
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
        received = await asyncio.wait_for(reading, _PATIENCE)
        writer.close()
        return received


async def test_all_pipelined_requests_are_answered_after_a_half_close() -> None:
    count = 5000
    received = await _exchange([b"".join(map(_get, range(count)))])
    assert _answers(received) == [(number, 0) for number in range(count)]


async def test_incomplete_last_request_ends_a_half_closed_connection() -> None:
    received = await _exchange([_get(0) + _get(1) + _post(2, b"abc")[:-1]])
    assert _answers(received) == [(0, 0), (1, 0)]


async def test_bad_request_does_not_overtake_those_before_it() -> None:
    bad = _post(50, b"abc", chunk=1).replace(b"1\r\na", b"z\r\na")
    received = await _exchange([b"".join(map(_get, range(50))) + bad])
    assert _answers(received) == [(number, 0) for number in range(50)]


@given(
    st.lists(st.tuples(st.binary(max_size=3000) | st.just(b"\r\n\r\n" * 40), st.integers(0, 9))),
    st.lists(st.integers(0, 5000), max_size=5),
)
def test_requests_are_answered_in_order_however_they_are_cut(
    requests: list[tuple[bytes, int]], cuts: list[int]
) -> None:
    sent = b"".join(
        _post(number, body, chunk=chunk) if chunk or body else _get(number)
        for number, (body, chunk) in enumerate(requests)
    )

    async def exchange() -> bytes:
        async with _wired(_echo) as (protocol, transport):
            at = 0
            for end in [*sorted(cuts), len(sent)]:
                if piece := sent[at:end]:
                    protocol.data_received(piece)
                    await asyncio.sleep(0)
                at = max(at, end)
            await _until(lambda: transport.written.count(b">") == len(requests))
            return transport.written

    expected = [(number, len(body)) for number, (body, _) in enumerate(requests)]
    assert _answers(asyncio.run(exchange())) == expected


# -- slices ---------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=50)), st.lists(st.booleans()))
def test_slices_are_what_was_received(pieces: list[bytes], bodies: list[bool]) -> None:
    unparsed, taken = Unparsed(), b""
    for number, piece in enumerate(pieces):
        unparsed.add(piece)
        if unparsed:
            in_body = number < len(bodies) and bodies[number]
            taken += unparsed.take(unparsed.next_size(in_body=in_body))
    while unparsed:
        taken += unparsed.take(unparsed.next_size(in_body=False))
    assert taken == b"".join(pieces)


def test_slices_end_with_heads_and_bodies() -> None:
    unparsed, slices = Unparsed(), []
    unparsed.add(_get(1) + _post(2, b"\r\n\r\n!") + _get(3))
    for length in (0, 5, None):
        slices.append(unparsed.take(unparsed.next_size(in_body=False)))
        unparsed.body_begins(length)
        if length:
            slices.append(unparsed.take(unparsed.next_size(in_body=True)))
    head = _post(2, b"\r\n\r\n!")
    assert slices == [_get(1), head[:-5], head[-5:], _get(3)]
    assert not unparsed
