"""HTTP bodies: size limits, compression, and the length of the JSON header (H-36, HI-17)."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Sequence

from penstock.core.buffer import Buffer
from penstock.core.errors import InvalidRequestError
from penstock.gateway.connections.http_call import HttpCall

LARGEST = (1 << 31) - 1
"""The most bytes of a whole body, binary tensors included (H-36)."""

_LARGE = 1 << 16
"""Bodies of at least so many bytes are compressed and decompressed in a thread."""

_GROWN = 1 << 20
"""The same for the decompressed size of a small body."""

_MAX_MEMBERS = 65_536
"""Members of a compressed body, each of which costs some microseconds even if it is empty."""

_FIRST_STEP = 4 << 10
"""Bytes of a member that are decompressed first."""

_ANY_HEADER = 15 + 32  # zlib's code for either a zlib or a gzip header
_NUMBER = re.compile(r"\s*([+-]?\d+)")


class RequestBody:
    """The body of one request, read on demand; `declared` is its size, `None` if in chunks."""

    def __init__(self, call: HttpCall) -> None:
        self.declared = call.body.declared
        self._call = call

    def ends_at(self, size: int) -> bool:
        """Whether it is known that the body has so many bytes."""
        body = self._call.body
        return self.declared == size or (body.complete and body.received == size)

    async def read(self, limit: int) -> Buffer:
        """The whole body. Raises `InvalidRequestError` if it is larger than `limit` bytes."""
        if self.declared is not None and self.declared > limit:
            raise _too_large("request content length", self.declared, limit)
        data = await self.read_until(limit + 1)
        if len(data) > limit:
            raise _too_large("request content length", len(data), limit)
        return data

    async def read_until(self, size: int) -> Buffer:
        """The bytes so far, once there are `size` or more; all of them if the body ends before."""
        return await self._call.body_until(size)


class DecompressedBody(RequestBody):
    """A body that was read and decompressed."""

    def __init__(self, call: HttpCall, data: bytes) -> None:
        super().__init__(call)
        self.declared = len(data)
        self._data = data

    def ends_at(self, size: int) -> bool:
        return self.declared == size

    async def read_until(self, size: int) -> Buffer:
        return self._data


async def read_body(call: HttpCall, limit: int) -> Buffer:
    """The body as received. Raises `InvalidRequestError` if it is larger than `limit` bytes."""
    return await RequestBody(call).read(limit)


async def open_body(call: HttpCall, limit: int) -> RequestBody:
    """The body of an inference request, which may be `LARGEST` bytes long.

    One that is compressed is read and decompressed here; `limit` bounds both forms of it.
    """
    body = RequestBody(call)
    if is_compressed(call):
        return DecompressedBody(call, await _decompressed(await body.read(limit), limit))
    if body.declared is not None and body.declared > LARGEST:
        raise larger_than_any(body.declared)
    return body


async def json_length(call: HttpCall, body: RequestBody, limit: int) -> int:
    """The length in bytes of the JSON in the body; 0 for a raw binary request (HI-13, HI-14).

    Raises `InvalidRequestError` if the JSON is larger than `limit` bytes, or than the body.
    """
    text = call.headers.get("inference-header-content-length")
    if text is None:
        if body.declared is not None and body.declared > limit:
            raise _too_large("Request JSON size", body.declared, limit)
        length = len(await body.read_until(limit + 1))
    else:
        length = await _declared_length(text, body, limit)
    if length > limit:
        raise _too_large("Request JSON size", length, limit)
    return length


async def _declared_length(text: str, body: RequestBody, limit: int) -> int:
    """The number in a header for the length of the JSON, which the body is at least as long as."""
    number = _NUMBER.match(text)
    # A number of over 20 digits exceeds any body, and `int` limits how many digits it converts.
    length = int(number[1][:20]) if number else 0
    size = body.declared
    if size is None:
        size = len(await body.read_until(length if 0 <= length <= limit else limit))
    if not 0 <= length <= size:
        raise InvalidRequestError(
            f"inference header size should be in range (0, {size}), got: {text}"
        )
    return length


def can_decompress(call: HttpCall) -> bool:
    """Whether the body's content encoding is supported."""
    return _encoding(call) in ("", "identity", "gzip", "deflate")


def is_compressed(call: HttpCall) -> bool:
    """Whether the body has to be decompressed."""
    return _encoding(call) not in ("", "identity")


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


def _encoding(call: HttpCall) -> str:
    return call.headers.get("content-encoding", "")


async def _decompressed(body: Buffer, limit: int) -> bytes:
    """The decompressed body. Raises `InvalidRequestError` if it is larger than `limit` bytes.

    Corrupt data counts as empty and a truncated stream as the part that is there: the JSON parser
    then reports the error. What follows a stream and is none is refused.
    """
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


def _decompress(body: Buffer, limit: int) -> bytes:
    """The decompressed body; cut off at `limit` + 1 bytes if it is larger.

    It may have several members, one behind the other (RFC 1952, section 2.2). Raises
    `InvalidRequestError` for anything else behind the first.
    """
    packed = memoryview(body)
    first, at, ended = _decompress_member(packed, 0, limit)
    plain, size = [first], len(first)
    while ended and at < len(packed) and size <= limit:
        if len(plain) == _MAX_MEMBERS:
            raise InvalidRequestError(
                f"compressed request body has more than {_MAX_MEMBERS} members"
            )
        part, at, ended = _decompress_member(packed, at, limit - size)
        plain.append(part)
        size += len(part)
        if not ended and size <= limit:
            raise InvalidRequestError(
                "compressed request body goes on behind its end with what is no whole gzip or"
                " deflate stream"
            )
    return first if len(plain) == 1 else b"".join(plain)


def _decompress_member(packed: memoryview, at: int, limit: int) -> tuple[bytes, int, bool]:
    """What a member holds, up to `limit` + 1 bytes, where it ends, and whether it does.

    It begins at `at`; if it is corrupt it is empty, and does not end.
    """
    machine = zlib.decompressobj(_ANY_HEADER)
    plain: list[bytes] = []
    size, step = 0, _FIRST_STEP
    # In steps that grow, since the machine copies what it is fed behind the member's end.
    while not machine.eof and at < len(packed) and size <= limit:
        end = min(at + step, len(packed))
        try:
            plain.append(machine.decompress(packed[at:end], limit + 1 - size))
        except zlib.error:
            return b"", at, False
        size += len(plain[-1])
        at = end - len(machine.unused_data)
        step *= 2
    return plain[0] if len(plain) == 1 else b"".join(plain), at, machine.eof


def _compress(parts: Sequence[Buffer], encoding: str) -> bytes:
    machine = zlib.compressobj(wbits=31 if encoding == "gzip" else 15)
    packed = [machine.compress(part) for part in parts]
    packed.append(machine.flush())
    return b"".join(packed)


def larger_than_any(size: int) -> InvalidRequestError:
    """The error for a body of more bytes than any may have."""
    return InvalidRequestError(
        f"request content length of {size} bytes exceeds the maximum allowed value of"
        f" {LARGEST} bytes."
    )


def _too_large(what: str, size: int, limit: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"{what} of {size} bytes exceeds the maximum allowed value of"
        f" {limit} bytes. Use --http-max-input-size to increase the limit."
    )
