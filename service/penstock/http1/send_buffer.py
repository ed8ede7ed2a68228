"""The bytes of a connection that are to be written."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.buffer import Buffer, join_small

_ENOUGH = 64 << 10
"""Buffered bytes from which a response waits."""

_WORTH_SPLITTING = 32 << 10
"""Buffered bytes from which large parts are looked for."""


class SendBuffer:
    """Bytes in order. `paused` is set while the socket's buffer is full.

    `splits` is true if the socket writes several parts without copying them.
    """

    splits = True

    def __init__(self) -> None:
        self.paused = False
        self._ready: list[Buffer] = []
        self._size = 0

    def __bool__(self) -> bool:
        """Whether there are bytes to write."""
        return bool(self._ready)

    @property
    def writable(self) -> bool:
        """Whether more would be written soon."""
        return not self.paused and self._size < _ENOUGH

    def add(self, data: Buffer) -> None:
        """Append bytes, which must not change any more."""
        self._ready.append(data)
        self._size += len(data)

    def add_parts(self, parts: Sequence[Buffer], size: int) -> None:
        """Append parts, `size` bytes in all."""
        self._ready += parts
        self._size += size

    def clear(self) -> None:
        """Drop all of it, after the connection is lost or aborted."""
        self._ready, self._size = [], 0

    def take_ready(self) -> list[Buffer]:
        """Remove and return what is to be written, with small parts joined."""
        ready, self._ready = self._ready, []
        splits = self.splits and self._size >= _WORTH_SPLITTING
        self._size = 0
        if len(ready) == 1:
            return ready
        return join_small(ready) if splits else [b"".join(ready)]
