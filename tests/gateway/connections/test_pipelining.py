"""Many requests sent at once on one connection, and bodies of many chunks."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.connections.wire import starter, wired, wired_to
from harness.raw_clients import hang_up
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.connections.listener import listening
from penstock.gateway.replies import Reply, reply
from penstock.http1.requests import RequestHead

_PATIENCE = 30.0
_TURNS = 200_000
_MANY = 2000


async def _echo(call: HttpCall) -> None:
    """Answer with the path and the length of the body."""
    length = len(await call.body_until(1 << 30))
    call.send(reply(f"<{call.path} {length}>".encode()))


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


async def _until(condition: Callable[[], bool]) -> None:
    """Give turns to the loop until the condition holds."""
    for _ in range(_TURNS):
        if condition():
            return
        await asyncio.sleep(0)
    pytest.fail("it never holds")


async def test_few_requests_are_parsed_before_the_first_is_answered() -> None:
    answering = asyncio.Event()

    async def held(call: HttpCall) -> None:
        await answering.wait()
        await _echo(call)

    async with wired(held) as (wire, transport):
        wire.deliver(b"".join(map(_get, range(_MANY))))
        for _ in range(50):
            await asyncio.sleep(0)
        assert 2 <= wire.waiting <= 18
        assert not transport.reading
        answering.set()


async def test_each_turn_parses_few_heads_and_bytes_wait_unread() -> None:
    async with wired(_echo) as (wire, transport):
        wire.deliver(b"".join(map(_get, range(_MANY))))
        while (before := transport.written.count(b">") + wire.waiting) < _MANY:
            assert wire.waiting <= 18
            assert not transport.reading
            await asyncio.sleep(0)
            assert transport.written.count(b">") + wire.waiting - before <= 36
        await _until(lambda: transport.written.count(b">") == _MANY and transport.reading)
    assert _answers(transport.written) == [(number, 0) for number in range(_MANY)]


@pytest.mark.parametrize("early", [False, True], ids=["wanted", "unwanted"])
async def test_each_turn_parses_few_chunks(early: bool) -> None:
    """Whether the body is read, or was answered before it came."""

    async def unread(call: HttpCall) -> None:
        call.send(reply(b"<>"))

    request = _post(1, b" " * 20_000, chunk=1)
    async with wired(unread if early else _echo) as (wire, transport):
        wire.deliver(request[:60])
        await asyncio.sleep(0)
        wire.deliver(request[60:])
        assert wire.received < 2000
        assert not transport.reading
        while wire.received < 20_000:
            before = wire.received
            await asyncio.sleep(0)
            assert wire.received - before < 2000
        await _until(lambda: b">" in transport.written and transport.reading)


async def test_body_of_known_length_is_parsed_at_once() -> None:
    request = _post(1, bytes(200_000))
    async with wired(_echo) as (wire, transport):
        wire.deliver(request)
        assert b" 200000>" in transport.written


async def test_each_turn_answers_few_requests() -> None:
    """Also where the answers need no wait."""
    async with wired_to(lambda call: call.send(reply(b"<>"))) as (wire, transport):
        wire.deliver(b"".join(map(_get, range(_MANY))))
        while (before := transport.written.count(b">")) < _MANY:
            await asyncio.sleep(0)
            assert transport.written.count(b">") - before <= 10


async def test_large_body_is_read_in_turns_however_fast_it_comes() -> None:
    async with wired(_echo) as (wire, transport):
        wire.deliver(_post(1, bytes(6 << 20))[: 5 << 20])
        assert not transport.reading
        await asyncio.sleep(0)
        assert transport.reading


async def test_body_of_a_request_that_waits_is_bounded() -> None:
    answering = asyncio.Event()

    async def held(call: HttpCall) -> None:
        await answering.wait()
        await _echo(call)

    async with wired(held) as (wire, transport):
        wire.deliver(_get(0) + _post(1, bytes(1 << 20))[: 100 << 10])
        assert not transport.reading
        answering.set()
        await _until(lambda: transport.reading)


async def test_request_waits_until_the_client_reads_the_answers_before_it() -> None:
    begun: list[str] = []

    async def answer(call: HttpCall) -> None:
        begun.append(call.path)
        call.send(reply(b"<%b 0>" % call.path.encode()))

    async with wired(answer) as (wire, transport):
        wire.protocol.pause_writing()
        wire.deliver(_get(0) + _get(1) + _get(2))
        await asyncio.sleep(0)
        assert not begun
        wire.protocol.resume_writing()
        await _until(lambda: transport.written.count(b">") == 3)
    assert _answers(transport.written) == [(0, 0), (1, 0), (2, 0)]


async def test_request_behind_an_unread_answer_is_answered_after_a_half_close() -> None:
    async with wired(_echo) as (wire, transport):
        wire.protocol.pause_writing()
        wire.deliver(_get(0))
        assert wire.protocol.eof_received()
        await asyncio.sleep(0)
        wire.protocol.resume_writing()
        await _until(lambda: transport.closed)
    assert _answers(transport.written) == [(0, 0)]


async def test_unread_answers_are_freed_when_their_client_goes() -> None:
    """At once: what only the garbage collector frees may stay for long."""
    alive: list[weakref.ref[np.ndarray[Any, Any]]] = []

    async def answer(call: HttpCall) -> None:
        contents = np.zeros(100_000, np.uint8)
        alive.append(weakref.ref(contents))
        wire.protocol.pause_writing()
        call.send(Reply(200, [], [contents.data]))

    gc.disable()
    try:
        async with wired(answer) as (wire, _):
            wire.deliver(_get(0))
            await asyncio.sleep(0)
            assert alive[0]() is not None
        assert alive[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("size", [40_000, 200_000])
async def test_incomplete_body_is_freed_when_its_client_goes(size: int) -> None:
    alive: list[weakref.ref[np.ndarray[Any, Any]]] = []

    def reserve(head: RequestHead) -> memoryview:
        memory = np.zeros(head.content_length or 0, np.uint8)
        alive.append(weakref.ref(memory))
        return memory.data

    gc.disable()
    try:
        async with wired(_echo, reserve) as (wire, _):
            wire.deliver(_post(0, bytes(size))[:-1000])
            wire.deliver(bytes(500))
            await asyncio.sleep(0)
            assert alive[0]() is not None
        await asyncio.sleep(0)
        assert alive[0]() is None
    finally:
        gc.enable()


async def test_transport_is_let_go_when_the_client_goes() -> None:
    """That of TLS holds what it has sent last, encrypted."""
    async with wired(_echo) as (wire, transport):
        alive = weakref.ref(transport)
        del transport
        wire.deliver(_get(0))
        await asyncio.sleep(0)
        assert alive() is not None
    assert wire.waiting == 0
    assert alive() is None


async def test_client_that_goes_is_reported_to_the_request_in_progress() -> None:
    """Also where further requests were parsed behind it."""
    seen: list[str] = []

    async def watching(call: HttpCall) -> None:
        call.on_disconnect(lambda: seen.append(call.path))
        await asyncio.sleep(0)

    async with wired(watching) as (wire, _):
        wire.deliver(_get(0) + _get(1))
        await asyncio.sleep(0)
    assert seen == ["/0"]


# -- through a listener ---------------------------------------------------------------------------


def _answers(received: bytes) -> list[tuple[int, int]]:
    """The number and the length of the body of each answer, in their order."""
    found = [part.split(b">")[0].split() for part in received.split(b"<")[1:]]
    return [(int(path[1:]), int(length)) for path, length in found]


async def _exchange(pieces: list[bytes]) -> bytes:
    """Send all, end this side, and read to the end."""
    async with listening(starter(_echo), "HTTP", "127.0.0.1", 0, ExitDeadline(1)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        reading = asyncio.create_task(reader.read())
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
        received = await asyncio.wait_for(reading, _PATIENCE)
        await hang_up(writer)
        return received


async def test_all_pipelined_requests_are_answered_after_a_half_close() -> None:
    count = 5000
    received = await _exchange([b"".join(map(_get, range(count)))])
    assert _answers(received) == [(number, 0) for number in range(count)]


async def test_client_that_only_sends_is_not_answered_without_end() -> None:
    """The server holds what fits into the sockets and little more, and all when it is read."""
    count, body = 60, bytes(1 << 20)
    begun: list[str] = []

    async def answer(call: HttpCall) -> None:
        begun.append(call.path)
        call.send(reply(body))

    loop = asyncio.get_running_loop()
    async with listening(starter(answer), "HTTP", "127.0.0.1", 0, ExitDeadline(1)) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setblocking(False)
            before = -1
            await loop.sock_sendall(client, b"".join(map(_get, range(count))))
            while len(begun) > before:
                before = len(begun)
                await asyncio.sleep(0.1)
            assert before < count // 2
            received = 0
            while received < count * len(body):
                received += len(await asyncio.wait_for(loop.sock_recv(client, 1 << 20), _PATIENCE))
    assert len(begun) == count


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
        async with wired(_echo) as (wire, transport):
            at = 0
            for end in [*sorted(cuts), len(sent)]:
                if piece := sent[at:end]:
                    wire.deliver(piece)
                    await asyncio.sleep(0)
                at = max(at, end)
            await _until(lambda: transport.written.count(b">") == len(requests))
            return transport.written

    expected = [(number, len(body)) for number, (body, _) in enumerate(requests)]
    assert _answers(asyncio.run(exchange())) == expected
