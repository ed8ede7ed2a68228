"""Length-prefixed messages of a gRPC request, put together from bytes as they come."""

from __future__ import annotations

import struct

from penstock.http2.stream import Buffer

PREFIX = struct.Struct(">BL")
PREFIX_SIZE = 5

_FIRST_PIECE = 1 << 20


class MessageSizeError(Exception):
    """A message is larger than allowed."""


class MessageReader:
    """Cuts a stream of bytes into messages.

    `take` hands on what is complete; the memory of a message is its own, never that which the
    bytes came in. It grows as the bytes arrive, whatever size the peer announces.
    """

    __slots__ = ("_filled", "_flag", "_limit", "_memory", "_prefix", "_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._prefix = bytearray()
        self._memory: bytearray | None = None
        self._filled = self._size = self._flag = 0

    @property
    def empty(self) -> bool:
        """Whether no message has begun."""
        return self._memory is None and not self._prefix

    def take(self, data: memoryview) -> list[tuple[int, Buffer]]:
        """The messages that these bytes complete, each with its flag for compression."""
        done: list[tuple[int, Buffer]] = []
        at, end = 0, len(data)
        while at < end:
            if self._memory is not None:
                at = self._fill(data, at, end, done)
            elif not self._prefix and end - at >= PREFIX_SIZE:
                flag, size = PREFIX.unpack_from(data, at)
                at += PREFIX_SIZE
                if size <= end - at:
                    self._check(size)
                    done.append((flag, bytes(data[at : at + size])))
                    at += size
                else:
                    self._begin(flag, size)
            else:
                at = self._read_prefix(data, at, end, done)
        return done

    def memory(self) -> memoryview | None:
        """Where the next bytes of the message in the making belong."""
        if self._memory is None:
            return None
        self._grow()
        return memoryview(self._memory)[self._filled :]

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
            self._begin(flag, size)
            if not size:
                done.append(self._finish())
        return stop

    def _begin(self, flag: int, size: int) -> None:
        self._check(size)
        self._flag, self._size, self._filled = flag, size, 0
        self._memory = bytearray(min(size, _FIRST_PIECE))

    def _fill(self, data: memoryview, at: int, end: int, done: list[tuple[int, Buffer]]) -> int:
        memory = self._memory
        assert memory is not None
        stop = min(end, at + self._size - self._filled)
        filled = self._filled + stop - at
        while filled > len(memory):
            self._grow(filled)
        memory[self._filled : filled] = data[at:stop]
        self._filled = filled
        if filled == self._size:
            done.append(self._finish())
        return stop

    def _grow(self, needed: int = 0) -> None:
        """Have room for more of the message, at most twice of what there is."""
        memory = self._memory
        assert memory is not None
        if self._filled == len(memory) or needed > len(memory):
            memory += bytes(min(len(memory), self._size - len(memory)))

    def _finish(self) -> tuple[int, Buffer]:
        memory, self._memory = self._memory, None
        assert memory is not None
        return self._flag, memory

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise MessageSizeError(f"Received message larger than max ({size} vs. {self._limit})")
