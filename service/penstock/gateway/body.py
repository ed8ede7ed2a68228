"""HTTP bodies: size limit, compression, and the length of the JSON header (H-36, HI-17)."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Sequence

from starlette.requests import Request

from penstock.core.buffer import Buffer
from penstock.core.errors import InvalidRequestError

_LARGE = 1 << 16
"""Bodies of at least so many bytes are compressed and decompressed in a thread."""

_GROWN = 1 << 20
"""The same for the decompressed size of a small body."""

_ANY_HEADER = 15 + 32  # zlib's code for either a zlib or a gzip header
_NUMBER = re.compile(r"\s*([+-]?\d+)")


async def read_body(request: Request, limit: int) -> bytes:
    """The body as received. Raises `InvalidRequestError` if it is larger than `limit` bytes."""
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
    """Whether the body's content encoding is supported."""
    return _encoding(request) in ("", "identity", "gzip", "deflate")


async def read_decompressed(request: Request, limit: int) -> bytes:
    """The body, decompressed by its content encoding, which must be a supported one.

    Corrupt data counts as empty and a truncated stream as the part that is there: the JSON parser
    then reports the error.
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
    """The length in bytes of the JSON in the body; 0 for a raw binary request (HI-13, HI-14)."""
    text = request.headers.get("inference-header-content-length")
    if text is None:
        return len(body)
    number = _NUMBER.match(text)
    # A number of over 20 digits exceeds any body, and `int` limits how many digits it converts.
    length = int(number[1][:20]) if number else 0
    if not 0 <= length <= len(body):
        raise InvalidRequestError(
            f"inference header size should be in range (0, {len(body)}), got: {text}"
        )
    return length


async def compress(parts: Sequence[Buffer], encoding: str) -> bytes:
    """`parts` joined and compressed as gzip or deflate."""
    if sum(memoryview(part).nbytes for part in parts) < _LARGE:
        return _compress(parts, encoding)
    return await asyncio.to_thread(_compress, parts, encoding)


def negotiate_encoding(accepted: str) -> str:
    """The supported encoding that an Accept-Encoding header prefers (HI-18); empty for none.

    Of equally preferred ones the first wins.
    """
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
    """The decompressed body; cut off at `limit` + 1 bytes if it is larger."""
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
