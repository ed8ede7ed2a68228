"""gzip and deflate of messages, in steps, with a limit on the decompressed size."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from penstock.http2.stream import Buffer

IDENTITY, GZIP, DEFLATE = b"identity", b"gzip", b"deflate"
ENCODINGS = (IDENTITY, DEFLATE, GZIP)
ACCEPTED = b",".join(ENCODINGS)

LARGE = 256 << 10
"""Bytes from which a message is compressed or decompressed on a thread."""

_WINDOW_BITS = {GZIP: 16 + zlib.MAX_WBITS, DEFLATE: zlib.MAX_WBITS}

_STEP = 1 << 20
"""Bytes read and written by one step: some 3 ms of decompression, 30 ms of compression."""
_PIECE = 64 << 10


class InflateError(Exception):
    """Data that cannot be decompressed, or to more than the limit (`too_large`)."""

    def __init__(self, text: str, *, too_large: bool = False) -> None:
        super().__init__(text)
        self.too_large = too_large


class Work(Protocol):
    """A long computation in steps, each of which may run on another thread."""

    def step(self) -> bool:
        """Run one step; returns whether it was the last."""

    def result(self) -> Buffer:
        """The result, after the last step; to be taken once."""


class Inflation:
    """Decompression of one message, to `limit` bytes at most. A step raises `InflateError`.

    Input is passed in pieces, since zlib copies the unconsumed rest of each. Output is one growing
    block, since the allocator keeps many small blocks for the thread but frees a large one.
    """

    def __init__(self, encoding: bytes, data: Buffer, limit: int) -> None:
        self._machine = zlib.decompressobj(_WINDOW_BITS[encoding])
        self._data = memoryview(data)
        self._limit = limit
        self._at = 0
        self._unpacked = bytearray()

    def step(self) -> bool:
        left = _STEP
        while not self._machine.eof and left > 0:
            left -= self._unpack_piece()
        if self._machine.eof and (self._machine.unused_data or self._at < len(self._data)):
            raise InflateError("message cannot be decompressed")
        return self._machine.eof

    def result(self) -> Buffer:
        unpacked, self._unpacked = self._unpacked, bytearray()
        return unpacked

    def close(self) -> None:
        """Release the output: a traceback may keep this object alive for a while.

        A step that is running on a thread finishes.
        """
        self._unpacked = bytearray()

    def _unpack_piece(self) -> int:
        """Decompress one piece; returns the bytes read plus the bytes written."""
        taken = 0
        piece: Buffer = self._machine.unconsumed_tail
        if not piece:
            piece = self._data[self._at : self._at + _PIECE]
            taken = len(piece)
            self._at += taken
        try:
            part = self._machine.decompress(piece, _PIECE)
        except zlib.error as error:
            raise InflateError("message cannot be decompressed") from error
        if not piece and not part and not self._machine.eof:  # cut short
            raise InflateError("message cannot be decompressed")
        self._unpacked += part
        if len(self._unpacked) > self._limit:
            text = f"message unpacks to more than {self._limit} bytes"
            raise InflateError(text, too_large=True)
        return taken + len(part)


class Deflation:
    """Compression of one message, given in parts."""

    def __init__(self, encoding: bytes, parts: Sequence[Buffer], level: int) -> None:
        self._machine = zlib.compressobj(level, zlib.DEFLATED, _WINDOW_BITS[encoding])
        self._left = deque(memoryview(part) for part in parts)
        self._packed = bytearray()

    def step(self) -> bool:
        room = _STEP
        while self._left and room:
            part = self._left.popleft()
            self._packed += self._machine.compress(part[:room])
            if len(part) > room:
                self._left.appendleft(part[room:])
            room -= min(room, len(part))
        if not self._left:
            self._packed += self._machine.flush()
        return not self._left

    def result(self) -> bytes:
        return bytes(self._packed)
