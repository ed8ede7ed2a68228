"""Headers of bodies: length, encoding, JSON header."""

from __future__ import annotations

import gzip
import random
import threading
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.serving import received_call
from penstock.core.errors import InvalidRequestError
from penstock.gateway import body
from penstock.gateway.body import compress, json_length, negotiate_encoding, open_body
from penstock.gateway.connections.http_call import HttpCall


def _request(body: bytes = b"", *, declared: bool = True, **headers: str) -> HttpCall:
    """A call that has arrived."""
    pairs = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    return received_call(body, pairs, declared=declared)


@pytest.mark.contract("HI-18")
@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate", "gzip"),
        ("deflate, gzip", "deflate"),
        ("gzip;q=0.5, deflate;q=0.8", "deflate"),
        ("gzip;q=1.0,identity;q=0.5", "gzip"),
        ("identity, gzip", "identity"),
        ("br, gzip", "gzip"),
        ("br", "identity"),
        ("gzip;q=0", "identity"),
        ("identity;q=0", "identity"),
        ("deflate;q=abc", "identity"),
        ("*", "identity"),
        ("", "identity"),
    ],
)
def test_encoding_that_the_client_likes_best_is_chosen(accepted: str, chosen: str) -> None:
    assert negotiate_encoding(accepted) == chosen


@pytest.mark.parametrize(("text", "length"), [("4", 4), ("0", 0), (" 3x", 3), ("abc", 0)])
@pytest.mark.parametrize("declared", [True, False])
async def test_json_length_is_the_number_that_its_header_begins_with(
    text: str, length: int, declared: bool
) -> None:
    assert await _json_length(b"body", declared, inference_header_content_length=text) == length


@pytest.mark.parametrize("declared", [True, False])
async def test_without_the_length_header_the_whole_body_is_json(declared: bool) -> None:
    assert await _json_length(b"body", declared) == 4


@pytest.mark.contract("HI-13")
@pytest.mark.parametrize("text", ["-1", "5", "9" * 5000])
@pytest.mark.parametrize("declared", [True, False])
async def test_json_length_outside_the_body_is_refused(text: str, declared: bool) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await _json_length(b"body", declared, inference_header_content_length=text)
    assert str(refused.value) == f"inference header size should be in range (0, 4), got: {text}"


async def _json_length(body: bytes, declared: bool, **headers: str) -> int:
    request = _request(body, declared=declared, **headers)
    return await json_length(request, await open_body(request, 100), 100)


async def _unpacked(request: HttpCall, limit: int) -> bytes:
    return bytes(await (await open_body(request, limit)).read(limit))


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


@pytest.mark.interpreted("it takes a function away, which compiled callers still have")
async def test_small_body_that_grows_does_not_block_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread of the loop unpacks a MiB of it at most."""
    unpack, here = body._decompress, list[int]()

    def spy(packed: bytes, limit: int) -> bytes:
        plain = unpack(packed, limit)
        if threading.current_thread() is threading.main_thread():
            here.append(len(plain))
        return plain

    monkeypatch.setattr(body, "_decompress", spy)
    packed = gzip.compress(bytes(60 << 20))
    plain = await _unpacked(_request(packed, content_encoding="gzip"), 64 << 20)
    assert len(plain) == 60 << 20
    assert here == [(1 << 20) + 1]


@pytest.mark.parametrize("size", [10, 1 << 20])
async def test_compression_is_lossless(size: int) -> None:
    body = b"x" * size
    assert gzip.decompress(await compress([body], "gzip")) == body
    assert zlib.decompress(await compress([body], "deflate")) == body
