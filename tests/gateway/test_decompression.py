"""Decompressed bodies: what they hold, how large they may be, and how many there are at once."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import threading
import zlib
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.serving import SilentServer, connected, received_call
from penstock.core.errors import InvalidRequestError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.gateway import decompression
from penstock.gateway.body import open_body
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.decompression import Decompression
from penstock.settings import HttpSettings

_PATIENCE = 30.0
_MIB = 1 << 20
_INFER = "/v2/models/numbers/infer"


def _request(body: bytes, *, content_encoding: str) -> HttpCall:
    """A call that has arrived."""
    return received_call(body, [(b"content-encoding", content_encoding.encode())])


async def _unpacked(request: HttpCall, limit: int) -> bytes:
    return bytes(await (await open_body(request, Decompression(limit))).read(limit))


@pytest.mark.contract("HI-17")
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_either_format_is_unpacked_under_either_name(
    encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    request = _request(pack(b"text" * 50_000), content_encoding=encoding)
    assert await _unpacked(request, 1 << 20) == b"text" * 50_000


async def test_corrupt_data_counts_as_empty() -> None:
    assert await _unpacked(_request(b"text", content_encoding="gzip"), 100) == b""


async def test_a_truncated_stream_counts_as_far_as_it_goes() -> None:
    packed = gzip.compress(bytes(range(256)), mtime=0)[:-40]
    plain = await _unpacked(_request(packed, content_encoding="gzip"), 1000)
    assert bytes(range(256)).startswith(plain)
    assert plain


_PACKERS: list[Callable[[bytes], bytes]] = [gzip.compress, zlib.compress]


@given(
    st.lists(st.tuples(st.binary() | st.integers(0, 1 << 17).map(bytes), st.sampled_from(_PACKERS)))
)
@settings(deadline=None)
async def test_all_members_are_unpacked(
    members: list[tuple[bytes, Callable[[bytes], bytes]]],
) -> None:
    """However many there are, and however long: RFC 1952, section 2.2."""
    packed = b"".join(pack(plain) for plain, pack in members)
    plain = b"".join(plain for plain, _ in members)
    request = _request(packed, content_encoding="gzip")
    assert await _unpacked(request, 1 << 24) == plain


@pytest.mark.parametrize("pack", _PACKERS)
@pytest.mark.parametrize("size", [10, 1 << 20])
@pytest.mark.parametrize("garbage", [b"\0", b"text", b"\x1f\x8b\x08"])
async def test_what_follows_the_last_member_is_refused(
    pack: Callable[[bytes], bytes], size: int, garbage: bytes
) -> None:
    plain = random.Random(1).randbytes(size)
    request = _request(pack(plain) + garbage, content_encoding="gzip")
    with pytest.raises(InvalidRequestError, match="goes on behind its end"):
        await _unpacked(request, 1 << 24)


@pytest.mark.contract("HI-17", "H-36")
async def test_members_share_one_limit() -> None:
    packed = gzip.compress(bytes(1 << 15))
    assert len(await _unpacked(_request(2 * packed, content_encoding="gzip"), 1 << 16)) == 1 << 16
    with pytest.raises(InvalidRequestError, match="exceeds the maximum allowed value of 65536"):
        await _unpacked(_request(3 * packed, content_encoding="gzip"), 1 << 16)


@pytest.mark.slow
async def test_number_of_members_is_limited() -> None:
    empty = gzip.compress(b"")
    full = gzip.compress(b"{}") + empty * 65_535
    assert await _unpacked(_request(full, content_encoding="gzip"), 1 << 24) == b"{}"
    with pytest.raises(InvalidRequestError, match="more than 65536 members"):
        await _unpacked(_request(full + empty, content_encoding="gzip"), 1 << 24)


@pytest.mark.contract("HI-17", "H-36")
async def test_bomb_is_refused_before_it_bursts() -> None:
    packed = gzip.compress(bytes(1 << 24))
    with pytest.raises(InvalidRequestError, match="exceeds the maximum allowed value of 65536"):
        await _unpacked(_request(packed, content_encoding="gzip"), 1 << 16)


@pytest.mark.slow
@pytest.mark.interpreted("it takes a function away, which compiled callers still have")
async def test_small_body_that_grows_does_not_block_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread of the loop unpacks a MiB of it at most."""
    unpack, here = decompression.decompress, list[int]()

    def spy(packed: bytes, limit: int) -> bytearray:
        plain = unpack(packed, limit)
        if threading.current_thread() is threading.main_thread():
            here.append(len(plain))
        return plain

    monkeypatch.setattr(decompression, "decompress", spy)
    packed = gzip.compress(bytes(60 << 20))
    plain = await _unpacked(_request(packed, content_encoding="gzip"), 64 << 20)
    assert len(plain) == 60 << 20
    assert here == [(1 << 20) + 1]


@pytest.mark.parametrize("size", [1000, 4 << 20])
async def test_what_is_unpacked_counts_among_the_bodies_in_flight(size: int) -> None:
    """Until it is released."""
    request = _request(gzip.compress(bytes(size)), content_encoding="gzip")
    body = await open_body(request, Decompression(64 << 20))
    assert request.bodies.used == size
    body.release()
    assert request.bodies.used == 0


# -- many at once ---------------------------------------------------------------------------------


@pytest.fixture
def server() -> SilentServer:
    return SilentServer()


@pytest.fixture
async def client(server: SilentServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that takes 2 MiB, and answers when it is told to."""
    local = HttpSettings(address="127.0.0.1", port=0, max_input_size=2 * _MIB)
    async with connected(server, local) as client:
        client.timeout = _PATIENCE
        yield client


async def _post(client: httpx.AsyncClient, size: int) -> httpx.Response:
    """Ask with a binary tensor of so many bytes, which becomes a thousandth of them."""
    binary = {"binary_data_size": size}
    item = {"name": "IN", "datatype": "FP32", "shape": [size // 4], "parameters": binary}
    text = json.dumps({"inputs": [item]}).encode()
    headers = {"content-encoding": "gzip", "inference-header-content-length": str(len(text))}
    return await client.post(_INFER, content=gzip.compress(text + bytes(size)), headers=headers)


async def _asked(server: SilentServer, count: int) -> list[tuple[InferenceRequest, ResponseStream]]:
    """The next so many requests that are with the model."""
    async with asyncio.timeout(_PATIENCE):
        return [await server.asked.get() for _ in range(count)]


def _answer(request: InferenceRequest, stream: ResponseStream) -> None:
    stream.send(InferenceResponse({"OUT": request.inputs["IN"]}, final=True))


_LARGE, _SMALL = 2 * _MIB - 4096, 400_000
_AT_ONCE = 8


@pytest.mark.slow
async def test_bombs_wait_for_each_other_and_not_small_bodies_for_them(
    client: httpx.AsyncClient, server: SilentServer
) -> None:
    """Eight of the largest size are decompressed; each that is answered makes room for one."""
    async with asyncio.TaskGroup() as tasks:
        bombs = [tasks.create_task(_post(client, _LARGE)) for _ in range(24)]
        asked = await _asked(server, _AT_ONCE)
        small = tasks.create_task(_post(client, _SMALL))
        ((request, stream),) = await _asked(server, 1)
        assert request.inputs["IN"].nbytes == _SMALL
        _answer(request, stream)
        assert (await small).status_code == 200
        assert server.asked.empty()
        while asked:
            _answer(*asked.pop(0))
            asked += await _asked(server, 1) if len(server.requests) < len(bombs) + 1 else []
            assert server.asked.empty()
    assert {bomb.result().status_code for bomb in bombs} == {200}


async def test_who_leaves_while_waiting_makes_room_for_those_behind(
    client: httpx.AsyncClient, server: SilentServer
) -> None:
    """The body of a client that has gone is not decompressed; one with the model gives its up."""
    async with asyncio.TaskGroup() as tasks:
        first = [tasks.create_task(_post(client, _LARGE)) for _ in range(_AT_ONCE)]
        asked = await _asked(server, _AT_ONCE)
        leaving = tasks.create_task(_post(client, _LARGE))
        await _all_parsed(client)
        leaving.cancel()
        last = tasks.create_task(_post(client, _LARGE - 4))
        await _all_parsed(client)
        first[0].cancel()
        ((request, stream),) = await _asked(server, 1)
        assert request.inputs["IN"].nbytes == _LARGE - 4
        for one in [*asked, (request, stream)]:
            _answer(*one)
        assert (await last).status_code == 200


async def _all_parsed(client: httpx.AsyncClient) -> None:
    """Some answers later, what was sent before has come to the server."""
    for _ in range(5):
        assert (await client.get("/v2/health/live")).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("body", [b"{", b'{"inputs": [1]}', b"[" * (2 * _MIB - 8)])
async def test_refused_bodies_give_their_memory_back(
    client: httpx.AsyncClient, server: SilentServer, body: bytes
) -> None:
    packed = gzip.compress(body.ljust(2 * _MIB - 8))
    for _ in range(2 * _AT_ONCE):
        answer = await client.post(_INFER, content=packed, headers={"content-encoding": "gzip"})
        assert answer.status_code >= 400
    assert server.asked.empty()


async def test_bodies_that_are_too_large_give_their_memory_back(client: httpx.AsyncClient) -> None:
    packed = gzip.compress(bytes(2 * _MIB + 1))
    for _ in range(2 * _AT_ONCE):
        answer = await client.post(_INFER, content=packed, headers={"content-encoding": "gzip"})
        assert "decompressed request size exceeds" in answer.json()["error"]
