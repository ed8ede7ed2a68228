"""The received bytes of one HTTP connection that wait for its parser, and how they are cut."""

from __future__ import annotations

_END = b"\r\n\r\n"
_CHUNKED_SLICE = 4 << 10


class Unparsed:
    """Received bytes that the parser has not seen yet.

    The parser takes all that it is fed, so what it is fed ends where a request may end: with an
    empty line, or with the last byte of a body whose length is known. A slice holds the ends of at
    most two heads, the second one of a slice before that ended within its empty line.
    """

    def __init__(self) -> None:
        self._data = b""
        self._start = 0
        self._body_left: int | None = None

    def __len__(self) -> int:
        return len(self._data) - self._start

    def add(self, data: bytes) -> None:
        """Append bytes of the connection."""
        self._data = self._data[self._start :] + data if self else data
        self._start = 0

    def clear(self) -> None:
        """Drop what waits."""
        self._data, self._start = b"", 0

    def body_begins(self, length: int | None) -> None:
        """Report the end of a head, and the bytes of the body behind it: `None` if in chunks."""
        self._body_left = length

    def body_received(self, size: int) -> None:
        """Report parsed bytes of the body."""
        if self._body_left is not None:
            self._body_left -= size

    def next_size(self, *, in_body: bool) -> int:
        """The bytes of the next slice, at least one of those that wait."""
        waiting = len(self)
        if in_body and self._body_left:
            return min(self._body_left, waiting)
        most = min(_CHUNKED_SLICE, waiting) if in_body else waiting
        end = self._data.find(_END, self._start, self._start + most)
        return most if end < 0 else end + len(_END) - self._start

    def take(self, size: int) -> bytes:
        """Remove and return so many bytes."""
        start = self._start
        self._start += size
        taken = self._data if size == len(self._data) else self._data[start : self._start]
        if self._start == len(self._data):
            self.clear()
        return taken
