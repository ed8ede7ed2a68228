"""A parser of gRPC's length-prefixed messages, for bytes that arrive in pieces."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from penstock.http2.stream import Buffer

PREFIX = struct.Struct(">BL")
PREFIX_SIZE = 5

_FIRST_PIECE = 4 << 20
"""Bytes to allocate at first for a large message; the system maps them as they are written."""


CHOSEN_FROM = 32 << 10
"""Bytes of a message from which its buffer may be allocated by the caller's `Reserve`."""

MOST_AT_ONCE = 256
"""Messages that are cut at once; 50,000 empty ones of a read would take 50 ms."""

Reserve = Callable[[int, memoryview], memoryview | None]
"""Allocates the buffer of a message, given its size and first bytes; `None` for the default."""


class Quota(Protocol):
    """The count of bytes that messages take together."""

    def open(self, memory: memoryview, size: int) -> Any:
        """Count `size` bytes of a message in this memory, until its last view is gone."""

    def add(self, charge: Any, size: int) -> None:
        """Count more bytes of the message that `open` has returned this charge for."""


class MessageSizeError(Exception):
    """A message is larger than the limit."""


def _any_memory(size: int) -> memoryview:
    """An uninitialized buffer, since all of it will be written."""
    return np.empty(size, np.uint8).data


class MessageReader:
    """Parses a byte stream into messages, each of which is copied into a buffer of its own.

    The memory of the buffer is taken as the bytes arrive, whatever size the peer announces, or is
    allocated by `reserve`. `quota` counts the bytes of all but small messages. Of many that come
    at once, some are left to be asked for: see `more`.
    """

    __slots__ = (
        "_charge",
        "_closed",
        "_counted",
        "_filled",
        "_flag",
        "_limit",
        "_memory",
        "_prefix",
        "_quota",
        "_reserve",
        "_rest",
        "_size",
    )

    def __init__(
        self, limit: int, reserve: Reserve | None = None, quota: Quota | None = None
    ) -> None:
        self._limit = limit
        self._reserve = reserve
        self._quota = quota
        self._charge: Any = None
        self._prefix = bytearray()
        self._rest = bytearray()
        self._memory: memoryview | None = None
        self._closed = False
        self._filled = self._size = self._flag = self._counted = 0

    @property
    def empty(self) -> bool:
        """Whether no message is incomplete."""
        return self._memory is None and not self._prefix

    def feed(self, data: memoryview) -> list[tuple[int, Buffer]]:
        """The next messages that these bytes complete, each with its compression flag."""
        done: list[tuple[int, Buffer]] = []
        if self._closed:
            return done
        if self._rest:
            self._rest += data
            return done
        at = self._cut(data, done)
        if at < len(data):
            self._rest += data[at:]
        return done

    def more(self) -> list[tuple[int, Buffer]]:
        """The messages that follow those returned before, of bytes that have come already."""
        done: list[tuple[int, Buffer]] = []
        if self._rest:
            with memoryview(self._rest) as rest:
                at = self._cut(rest, done)
            del self._rest[:at]
        return done

    def _cut(self, data: memoryview, done: list[tuple[int, Buffer]]) -> int:
        """Add to `done` as many messages as may be; returns where the rest begins."""
        at, end = 0, len(data)
        while at < end and len(done) < MOST_AT_ONCE:
            if self._memory is not None:
                at = self._fill(data, at, end, done)
            elif not self._prefix and end - at >= PREFIX_SIZE:
                flag, size = PREFIX.unpack_from(data, at)
                at += PREFIX_SIZE
                if size <= end - at:
                    self._check(size)
                    done.append((flag, self._whole(flag, data[at : at + size])))
                    at += size
                else:
                    self._begin(flag, size, data[at:])
            else:
                at = self._read_prefix(data, at, end, done)
        return at

    def close(self) -> None:
        """Discard buffered data and ignore the rest."""
        self._closed = True
        self._rest = bytearray()
        self._memory = self._charge = None

    def feed_pieces(self, pieces: Sequence[memoryview], size: int) -> list[tuple[int, Buffer]]:
        """As `feed`, for bytes in pieces; `size` is their total."""
        if self._memory is None or self._filled + size > self._size:
            done: list[tuple[int, Buffer]] = []
            for piece in pieces:
                if len(done) < MOST_AT_ONCE:
                    done += self.feed(piece)
                elif not self._closed:
                    self._rest += piece
            return done
        memory, at = self._room(self._filled + size), self._filled
        for piece in pieces:
            end = at + len(piece)
            memory[at:end] = piece
            at = end
        self._filled = at
        self._count()
        return [self._finish()] if at == self._size else []

    def memory(self) -> memoryview | None:
        """The buffer for the next bytes of the incomplete message."""
        if self._memory is None:
            return None
        self._room(min(self._filled + 1, self._size))
        return self._memory[self._filled :]

    def filled(self, size: int) -> tuple[int, Buffer] | None:
        """`size` bytes were read into `memory()`; returns the message if it is complete."""
        self._filled += size
        self._count()
        return self._finish() if self._filled == self._size else None

    def _read_prefix(
        self, data: memoryview, at: int, end: int, done: list[tuple[int, Buffer]]
    ) -> int:
        stop = min(end, at + PREFIX_SIZE - len(self._prefix))
        self._prefix += data[at:stop]
        if len(self._prefix) == PREFIX_SIZE:
            flag, size = PREFIX.unpack(self._prefix)
            self._prefix.clear()
            self._begin(flag, size, data[stop:])
            if not size:
                done.append(self._finish())
        return stop

    def _begin(self, flag: int, size: int, beginning: memoryview) -> None:
        self._check(size)
        self._flag, self._size, self._filled = flag, size, 0
        memory = None if flag else self._memory_for(size, beginning)
        memory = self._memory = _any_memory(min(size, _FIRST_PIECE)) if memory is None else memory
        self._charge = None if self._quota is None else self._quota.open(memory, 0)
        self._counted = 0

    def _memory_for(self, size: int, beginning: memoryview) -> memoryview | None:
        """The buffer that `reserve` allocates for the message, if any."""
        if self._reserve is None or size < CHOSEN_FROM:
            return None
        return self._reserve(size, beginning)

    def _whole(self, flag: int, data: memoryview) -> Buffer:
        """Copy a complete message into a buffer of its own."""
        size = len(data)
        memory = None if flag else self._memory_for(size, data)
        if memory is None:
            if size < CHOSEN_FROM or self._quota is None:
                return bytes(data)
            memory = _any_memory(size)
        memory[:] = data
        if self._quota is not None:
            self._quota.open(memory, size)
        return memory

    def _fill(self, data: memoryview, at: int, end: int, done: list[tuple[int, Buffer]]) -> int:
        stop = min(end, at + self._size - self._filled)
        filled = self._filled + stop - at
        memory = self._room(filled)
        memory[self._filled : filled] = data[at:stop]
        self._filled = filled
        self._count()
        if filled == self._size:
            done.append(self._finish())
        return stop

    def _room(self, needed: int) -> memoryview:
        """The buffer of the message, grown to hold `needed` bytes."""
        memory = self._memory
        assert memory is not None
        if needed > len(memory):
            grown = self._memory = self._larger(needed, len(memory))
            grown[: self._filled] = memory[: self._filled]
            memory = grown
            if self._quota is not None:
                self._charge = self._quota.open(memory, self._filled)
        return memory

    def _larger(self, needed: int, size: int) -> memoryview:
        """A buffer for `needed` bytes and more, instead of `size`.

        The second is that of the whole message: copies of what has come would hold up others. Its
        pages are the system's to give as they are written.
        """
        with suppress(MemoryError):
            return _any_memory(self._size)
        return _any_memory(min(max(needed, 2 * size), self._size))

    def _count(self) -> None:
        """Count the bytes that have come into the buffer."""
        if self._charge is not None and self._quota is not None:
            self._quota.add(self._charge, self._filled - self._counted)
            self._counted = self._filled

    def _finish(self) -> tuple[int, Buffer]:
        memory, self._memory, self._charge = self._memory, None, None
        assert memory is not None
        return self._flag, memory

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise MessageSizeError(f"Received message larger than max ({size} vs. {self._limit})")
