"""HTTP bodies: size limits, compression, and the length of the JSON header (H-36, HI-17)."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Sequence

from penstock.core.buffer import Buffer
from penstock.core.errors import InvalidRequestError
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.decompression import Decompression
from penstock.gateway.memory_quota import Share

LARGEST = (1 << 31) - 1
"""The most bytes of a whole body, binary tensors included, unless an option says less (H-36)."""

_LARGE = 1 << 16
"""Bodies of at least so many bytes are compressed in a thread."""

_NUMBER = re.compile(r"\s*([+-]?\d+)")
_ACCEPTED = re.compile(r"[ \t]*([^ \t;]+)[ \t]*(?:;[ \t]*[qQ]=(\d+(?:\.\d*)?)[ \t]*)?", re.ASCII)


class RequestBody:
    """The body of one request, read on demand; `declared` is its size, `None` if in chunks.

    `share` is its part of a quota of memory, if it has one.
    """

    def __init__(self, call: HttpCall, share: Share | None = None, largest: int = LARGEST) -> None:
        self.declared = call.body.declared
        self._largest = largest
        self._call = call
        self._share = share

    def ends_at(self, size: int) -> bool:
        """Whether it is known that the body has so many bytes."""
        body = self._call.body
        return self.declared == size or (body.complete and body.received == size)

    def check_size(self, size: int) -> None:
        """Raise `InvalidRequestError` if so many bytes are more than a body may have."""
        if size > self._largest:
            raise InvalidRequestError(
                f"request content length of {size} bytes exceeds the maximum allowed value of"
                f" {self._largest} bytes."
            )

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

    async def until(self, event: asyncio.Future[None]) -> None:
        """Wait for an event. Raises `ClientDisconnectError` if the client goes before."""
        await self._call.until(event)

    def take_share(self) -> Share | None:
        """The share, which the caller releases from now on."""
        share, self._share = self._share, None
        return share

    def release(self) -> None:
        """The body is not needed any more."""
        if self._share is not None:
            self._share.release()


class DecompressedBody(RequestBody):
    """A body that was read and decompressed."""

    def __init__(self, call: HttpCall, data: Buffer, share: Share) -> None:
        super().__init__(call, share)
        self.declared = len(data)
        self._data = data

    def ends_at(self, size: int) -> bool:
        return self.declared == size

    async def read_until(self, size: int) -> Buffer:
        return self._data


async def read_body(call: HttpCall, limit: int) -> Buffer:
    """The body as received. Raises `InvalidRequestError` if it is larger than `limit` bytes."""
    return await RequestBody(call).read(limit)


async def open_body(
    call: HttpCall, decompression: Decompression, largest: int = LARGEST
) -> RequestBody:
    """The body of an inference request, of `largest` bytes at most, binary tensors included (H-36).

    One that is compressed is read and decompressed here; the limit bounds both forms of it.
    """
    body = RequestBody(call, largest=largest)
    if is_compressed(call):
        packed = await body.read(decompression.limit)
        return DecompressedBody(call, *await decompression.plain(call, packed))
    if body.declared is not None:
        body.check_size(body.declared)
    return body


async def json_length(call: HttpCall, body: RequestBody, limit: int) -> int:
    """The length in bytes of the JSON in the body; 0 for a raw binary request (HI-13, HI-14).

    Raises `InvalidRequestError` if the JSON is larger than `limit` bytes, or than the body.
    """
    text = call.headers.get("inference-header-content-length")
    if text is None:
        if body.declared is not None and body.declared > limit:
            raise _too_large("request JSON size", body.declared, limit)
        length = len(await body.read_until(limit + 1))
    else:
        length = await _declared_length(call, text, body, limit)
    if length > limit:
        raise _too_large("request JSON size", length, limit)
    return length


async def _declared_length(call: HttpCall, text: str, body: RequestBody, limit: int) -> int:
    """The number in a header for the length of the JSON, which the body is at least as long as."""
    number = _NUMBER.match(text)
    # A number of over 20 digits exceeds any body, and `int` limits how many digits it converts.
    length = int(number[1][:20]) if number else 0
    size = body.declared
    if size is None:
        size = len(await body.read_until(length if 0 <= length <= limit else limit))
    if not 0 <= length <= size:
        if not size and is_compressed(call):
            raise not_unpacked()
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
    """The supported encoding that an Accept-Encoding header prefers (HI-18, RFC 9110 12.4.2).

    Of equally preferred ones the first wins; items of another form count for nothing.
    """
    best, weight = "identity", 0.0
    for item in accepted.split(","):
        found = _ACCEPTED.fullmatch(item)
        if found is None:
            continue
        name, value = found[1].lower(), float(found[2] or 1)
        if name in ("identity", "gzip", "deflate") and value > weight:
            best, weight = name, value
    return best


def _encoding(call: HttpCall) -> str:
    return call.headers.get("content-encoding", "")


def _compress(parts: Sequence[Buffer], encoding: str) -> bytes:
    machine = zlib.compressobj(wbits=31 if encoding == "gzip" else 15)
    packed = [machine.compress(part) for part in parts]
    packed.append(machine.flush())
    return b"".join(packed)


def not_unpacked() -> InvalidRequestError:
    """The error for a compressed body in which nothing was found."""
    return InvalidRequestError("unable to decompress the request body")


def _too_large(what: str, size: int, limit: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"{what} of {size} bytes exceeds the maximum allowed value of"
        f" {limit} bytes. Use --http-max-input-size to increase the limit."
    )
