"""Compression of messages: gzip and deflate, step by step, with a bound on what they unpack to."""

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
"""Bytes of a message that are too many to be compressed, or unpacked, in one go."""

_WINDOW_BITS = {GZIP: 16 + zlib.MAX_WBITS, DEFLATE: zlib.MAX_WBITS}

_STEP = 1 << 20
"""Bytes that one step takes and gives: some 3 ms of unpacking, and 30 of compressing."""
_PIECE = 64 << 10


class InflateError(Exception):
    """Bytes that cannot be unpacked, or to more than is allowed."""

    def __init__(self, text: str, *, too_large: bool = False) -> None:
        super().__init__(text)
        self.too_large = too_large


class Work(Protocol):
    """Something long that is done in steps, by whichever thread."""

    def step(self) -> bool:
        """Do some of it; whether that was the last."""

    def result(self) -> bytes:
        """What came of it, after the last step."""


class Inflation:
    """Unpacking the message whose compressed form is `data`, to `limit` bytes at most.

    A step raises `InflateError`. Input goes in by pieces, since what zlib leaves of one is copied;
    what comes out is in one growing block, since the allocator keeps the many small ones of a
    thread, and gives back a large one.
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

    def result(self) -> bytes:
        return bytes(self._unpacked)

    def close(self) -> None:
        """Let go of what was unpacked, as errors keep those who raised them for a while.

        A step may be under way, on a thread; it comes to its end.
        """
        self._unpacked = bytearray()

    def _unpack_piece(self) -> int:
        """Answers how many bytes went in and came out."""
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
    """Compressing a message, which comes in parts."""

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
