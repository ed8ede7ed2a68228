"""Headers of bodies: length, encoding, JSON header."""

from __future__ import annotations

import gzip
import zlib

import pytest

from gateway.serving import received_call
from penstock.core.errors import InvalidRequestError
from penstock.gateway.body import compress, json_length, negotiate_encoding, open_body
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.decompression import Decompression


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
        ("gzip; q=1", "gzip"),
        ("gzip ;\tq=0.5 , deflate; Q=0.8", "deflate"),
        ("GZIP", "gzip"),
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
    return await json_length(request, await open_body(request, Decompression(100)), 100)


@pytest.mark.parametrize("size", [10, 1 << 20])
async def test_compression_is_lossless(size: int) -> None:
    body = b"x" * size
    assert gzip.decompress(await compress([body], "gzip")) == body
    assert zlib.decompress(await compress([body], "deflate")) == body
