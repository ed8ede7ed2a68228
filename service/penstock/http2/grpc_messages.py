"""Length-prefixed messages of a gRPC request, put together from bytes as they come."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np

from penstock.http2.stream import Buffer

PREFIX = struct.Struct(">BL")
PREFIX_SIZE = 5

_FIRST_PIECE = 4 << 20
"""Bytes to reserve for a message of which nothing has come yet; the system gives them as used."""


CHOSEN_FROM = 32 << 10
"""Bytes of a message from which its memory may be of a kind that whoever gets it has chosen."""

Reserve = Callable[[int, memoryview], memoryview | None]
"""Memory for a message of so many bytes that begins like this, or `None` for any memory."""


class MessageSizeError(Exception):
    """A message is larger than allowed."""


def _any_memory(size: int) -> memoryview:
    """Memory that nobody has to clear first, since all of it will be written."""
    return np.empty(size, np.uint8).data


class MessageReader:
    """Cuts a stream of bytes into messages.

    `take` hands on what is complete; the memory of a message is its own, never that which the
    bytes came in. It grows as the bytes arrive, whatever size the peer announces, or is what
    `reserve` gives for the message.
    """

    __slots__ = ("_closed", "_filled", "_flag", "_limit", "_memory", "_prefix", "_reserve", "_size")

    def __init__(self, limit: int, reserve: Reserve | None = None) -> None:
        self._limit = limit
        self._reserve = reserve
        self._prefix = bytearray()
        self._memory: memoryview | None = None
        self._closed = False
        self._filled = self._size = self._flag = 0

    @property
    def empty(self) -> bool:
        """Whether no message has begun."""
        return self._memory is None and not self._prefix

    def take(self, data: memoryview) -> list[tuple[int, Buffer]]:
        """The messages that these bytes complete, each with its flag for compression."""
        done: list[tuple[int, Buffer]] = []
        at, end = 0, 0 if self._closed else len(data)
        while at < end:
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
        return done

    def close(self) -> None:
        """Nobody wants what has come, nor what comes."""
        self._closed = True
        self._memory = None

    def take_all(self, pieces: Sequence[memoryview], size: int) -> list[tuple[int, Buffer]]:
        """As `take`, for bytes in pieces; `size` is the number of all."""
        if self._memory is None or self._filled + size > self._size:
            return [message for piece in pieces for message in self.take(piece)]
        memory, at = self._room(self._filled + size), self._filled
        for piece in pieces:
            end = at + len(piece)
            memory[at:end] = piece
            at = end
        self._filled = at
        return [self._finish()] if at == self._size else []

    def memory(self) -> memoryview | None:
        """Where the next bytes of the message in the making belong."""
        if self._memory is None:
            return None
        self._room(min(self._filled + 1, self._size))
        return self._memory[self._filled :]

    def filled(self, size: int) -> tuple[int, Buffer] | None:
        """So many bytes were read into `memory()`; the message if that completes it."""
        self._filled += size
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
        self._memory = _any_memory(min(size, _FIRST_PIECE)) if memory is None else memory

    def _memory_for(self, size: int, beginning: memoryview) -> memoryview | None:
        """Memory of the kind that is wanted for such messages."""
        if self._reserve is None or size < CHOSEN_FROM:
            return None
        return self._reserve(size, beginning)

    def _whole(self, flag: int, data: memoryview) -> Buffer:
        """A message that is all here, in memory of its own."""
        memory = None if flag else self._memory_for(len(data), data)
        if memory is None:
            return bytes(data)
        memory[:] = data
        return memory

    def _fill(self, data: memoryview, at: int, end: int, done: list[tuple[int, Buffer]]) -> int:
        stop = min(end, at + self._size - self._filled)
        filled = self._filled + stop - at
        memory = self._room(filled)
        memory[self._filled : filled] = data[at:stop]
        self._filled = filled
        if filled == self._size:
            done.append(self._finish())
        return stop

    def _room(self, needed: int) -> memoryview:
        """The memory of the message, with room for so many bytes; doubled as often as it takes."""
        memory = self._memory
        assert memory is not None
        size = len(memory)
        if needed > size:
            while needed > size:
                size = min(2 * size, self._size)
            grown = self._memory = _any_memory(size)
            grown[: self._filled] = memory[: self._filled]
            memory = grown
        return memory

    def _finish(self) -> tuple[int, Buffer]:
        memory, self._memory = self._memory, None
        assert memory is not None
        return self._flag, memory

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise MessageSizeError(f"Received message larger than max ({size} vs. {self._limit})")
