"""Request bodies: read within the limit, decompressed within the limit (H-36, HI-17)."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Sequence

from starlette.requests import Request

from penstock.core.buffer import Buffer
from penstock.core.errors import InvalidRequestError

_LARGE = 1 << 16
"""Bytes from which on a thread compresses and decompresses."""

_GROWN = 1 << 20
"""The same for what a small body may grow to."""

_ANY_HEADER = 15 + 32  # zlib's code for: a zlib or a gzip header, whichever comes
_NUMBER = re.compile(r"\s*([+-]?\d+)")


async def read_body(request: Request, limit: int) -> bytes:
    """The body as it came. Raises when it is larger than `limit` bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(int(declared), limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(size, limit)
        chunks.append(chunk)
    return b"".join(chunks)


def can_decompress(request: Request) -> bool:
    """Whether the compression of the body is one that is known."""
    return _encoding(request) in ("", "identity", "gzip", "deflate")


async def read_decompressed(request: Request, limit: int) -> bytes:
    """The body without the compression that its headers name, which must be known.

    What is no such compression counts as empty, and what is cut short as what there is of it:
    then the text itself shows what is wrong.
    """
    body = await read_body(request, limit)
    if _encoding(request) in ("", "identity"):
        return body
    if len(body) < _LARGE:
        plain = _decompress(body, _GROWN)
        if len(plain) <= min(limit, _GROWN):
            return plain
    plain = await asyncio.to_thread(_decompress, body, limit)
    if len(plain) > limit:
        raise InvalidRequestError(
            "decompressed request size exceeds the maximum allowed value of"
            f" {limit} bytes. Use --http-max-input-size to increase the limit."
        )
    return plain


def header_length(request: Request, body: bytes) -> int:
    """How much of the body is JSON; 0 for a raw binary request (HI-13, HI-14)."""
    text = request.headers.get("inference-header-content-length")
    if text is None:
        return len(body)
    number = _NUMBER.match(text)
    # No body is as long as a number of twenty digits says, and Python reads no endless ones.
    length = int(number[1][:20]) if number else 0
    if not 0 <= length <= len(body):
        raise InvalidRequestError(
            f"inference header size should be in range (0, {len(body)}), got: {text}"
        )
    return length


async def compress(parts: Sequence[Buffer], encoding: str) -> bytes:
    """The body that `parts` make as gzip or deflate."""
    if sum(memoryview(part).nbytes for part in parts) < _LARGE:
        return _compress(parts, encoding)
    return await asyncio.to_thread(_compress, parts, encoding)


def negotiate_encoding(accepted: str) -> str:
    """What an Accept-Encoding header likes best of what there is (HI-18); the first of equals."""
    best, weight = "identity", 0.0
    for item in accepted.split(","):
        name, _, quality = item.strip(" ").partition(";q=")
        try:
            value = float(quality or 1)
        except ValueError:
            continue
        if name in ("identity", "gzip", "deflate") and value > weight:
            best, weight = name, value
    return best


def _encoding(request: Request) -> str:
    return request.headers.get("content-encoding", "")


def _decompress(body: bytes, limit: int) -> bytes:
    """What the body unpacks to; one byte more than `limit` if that is too much."""
    machine = zlib.decompressobj(_ANY_HEADER)
    try:
        return machine.decompress(body, limit + 1)
    except zlib.error:
        return b""


def _compress(parts: Sequence[Buffer], encoding: str) -> bytes:
    machine = zlib.compressobj(wbits=31 if encoding == "gzip" else 15)
    return b"".join([*map(machine.compress, parts), machine.flush()])


def _too_large(size: int, limit: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"request content length of {size} bytes exceeds the maximum allowed value of"
        f" {limit} bytes. Use --http-max-input-size to increase the limit."
    )
