"""Compression of messages: gzip and deflate, with a bound on what they unpack to."""

from __future__ import annotations

import zlib

from penstock.http2.stream import Buffer

IDENTITY, GZIP, DEFLATE = b"identity", b"gzip", b"deflate"
ENCODINGS = (IDENTITY, DEFLATE, GZIP)
ACCEPTED = b",".join(ENCODINGS)

_WINDOW_BITS = {GZIP: 16 + zlib.MAX_WBITS, DEFLATE: zlib.MAX_WBITS}


class InflateError(Exception):
    """Bytes that cannot be unpacked, or to more than is allowed."""

    def __init__(self, text: str, *, too_large: bool = False) -> None:
        super().__init__(text)
        self.too_large = too_large


def deflate(encoding: bytes, data: Buffer, level: int = 6) -> bytes:
    """The compressed form of a message."""
    packer = zlib.compressobj(level, zlib.DEFLATED, _WINDOW_BITS[encoding])
    return packer.compress(data) + packer.flush()


def inflate(encoding: bytes, data: Buffer, limit: int) -> bytes:
    """The message in its compressed form `data`; raises `InflateError`."""
    unpacker = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        message = unpacker.decompress(data, limit + 1)
    except zlib.error as error:
        raise InflateError("message cannot be decompressed") from error
    if len(message) > limit:
        raise InflateError(f"message unpacks to more than {limit} bytes", too_large=True)
    if not unpacker.eof or unpacker.unused_data:
        raise InflateError("message cannot be decompressed")
    return message
