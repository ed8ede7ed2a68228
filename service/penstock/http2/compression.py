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

    A step raises `InflateError`. Input goes in by pieces, since what zlib leaves of one is copied.
    """

    def __init__(self, encoding: bytes, data: Buffer, limit: int) -> None:
        self._machine = zlib.decompressobj(_WINDOW_BITS[encoding])
        self._data = memoryview(data)
        self._limit = limit
        self._at = self._size = 0
        self._parts: list[bytes] = []

    def step(self) -> bool:
        end = self._at + self._size + _STEP
        while not self._machine.eof and self._at + self._size < end:
            self._unpack_piece()
        if self._machine.eof and (self._machine.unused_data or self._at < len(self._data)):
            raise InflateError("message cannot be decompressed")
        return self._machine.eof

    def result(self) -> bytes:
        return b"".join(self._parts)

    def _unpack_piece(self) -> None:
        piece: Buffer = self._machine.unconsumed_tail
        if not piece:
            piece = self._data[self._at : self._at + _PIECE]
            self._at += len(piece)
        try:
            part = self._machine.decompress(piece, _PIECE)
        except zlib.error as error:
            raise InflateError("message cannot be decompressed") from error
        if not piece and not part and not self._machine.eof:  # cut short
            raise InflateError("message cannot be decompressed")
        self._size += len(part)
        self._parts.append(part)
        if self._size > self._limit:
            text = f"message unpacks to more than {self._limit} bytes"
            raise InflateError(text, too_large=True)


class Deflation:
    """Compressing a message, which comes in parts."""

    def __init__(self, encoding: bytes, parts: Sequence[Buffer], level: int) -> None:
        self._machine = zlib.compressobj(level, zlib.DEFLATED, _WINDOW_BITS[encoding])
        self._left = deque(memoryview(part) for part in parts)
        self._packed: list[bytes] = []

    def step(self) -> bool:
        room = _STEP
        while self._left and room:
            part = self._left.popleft()
            self._packed.append(self._machine.compress(part[:room]))
            if len(part) > room:
                self._left.appendleft(part[room:])
            room -= min(room, len(part))
        if not self._left:
            self._packed.append(self._machine.flush())
        return not self._left

    def result(self) -> bytes:
        return b"".join(self._packed)
