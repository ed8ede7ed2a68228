"""The responses of one connection: their heads, framing and bodies, and the bytes to be written."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from penstock.core.buffer import Buffer, join_small
from penstock.http1.requests import Exchange, Field


class ResponseWriter:
    """Writes responses into a send buffer; with `draining` each says that it is the last one."""

    def __init__(self, send_buffer: SendBuffer) -> None:
        self.draining = False
        self._send_buffer = send_buffer

    def whole(
        self, exchange: Exchange, status: int, fields: Sequence[Field], parts: Sequence[Buffer]
    ) -> None:
        """Write a whole response. Raises `ValueError` for a field that cannot be sent."""
        size = sum(map(len, parts))
        bodiless = status < 200 or status in (204, 304)
        framing = b"" if bodiless else b"content-length: %d\r\n" % size
        self._head(exchange, status, fields, framing)
        if size and not bodiless and exchange.head.method != "HEAD":
            self._send_buffer.add_parts(parts, size)
            exchange.sent = size

    def begin(self, exchange: Exchange, status: int, fields: Sequence[Field]) -> None:
        """Write the head of a response whose body follows in parts."""
        framing = b""
        if exchange.head.version == "1.1":
            exchange.chunked = exchange.head.method != "HEAD"
            framing = b"transfer-encoding: chunked\r\n"
        else:
            exchange.head.keep_alive = False  # the end of the connection ends the body
        self._head(exchange, status, fields, framing)

    def part(self, exchange: Exchange, data: Buffer) -> None:
        """Write a part of the body."""
        size = len(data)
        if not size or exchange.head.method == "HEAD":
            return
        exchange.sent += size
        if exchange.chunked:
            self._send_buffer.add_parts((b"%x\r\n" % size, data, b"\r\n"), size + 8)
        else:
            self._send_buffer.add(data)

    def end(self, exchange: Exchange) -> None:
        """Write the end of a body in parts."""
        if exchange.chunked:
            self._send_buffer.add(LAST_CHUNK)

    def _head(
        self, exchange: Exchange, status: int, fields: Sequence[Field], framing: bytes
    ) -> None:
        head = response_head(status, fields, framing + self._persistence(exchange))
        exchange.answered = True
        self._send_buffer.add(head)

    def _persistence(self, exchange: Exchange) -> bytes:
        """The field that says whether the connection stays, where that is not the default."""
        head, body = exchange.head, exchange.body
        if head.expects_continue and not (exchange.continued or body.complete or body.received):
            head.keep_alive = False  # the client may send the body, or not
        if self.draining or not head.keep_alive:
            head.keep_alive = False
            return b"connection: close\r\n"
        return b"" if head.version == "1.1" else b"connection: keep-alive\r\n"


_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

LAST_CHUNK = b"0\r\n\r\n"


_TEXTS = {HTTPStatus.SERVICE_UNAVAILABLE: "Server exiting"}
"""Texts of errors that are not the phrase of their status."""


def response_head(status: int, fields: Sequence[Field], framing: bytes) -> bytes:
    """The bytes of a head; `framing` is complete lines of it.

    Raises `ValueError` for a field that holds a line break, which would begin another one.
    """
    lines = [_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    for name, value in fields:
        lines += (name, b": ", value, b"\r\n")
    lines += (framing, b"\r\n")
    head = b"".join(lines)
    if head.count(b"\n") != len(fields) + 2 + framing.count(b"\n"):
        raise ValueError("a header field holds a line break")
    return head


def error_response(status: HTTPStatus, problem: str = "") -> bytes:
    """A whole response that ends its connection, with a text as of all errors (H-27)."""
    text = b'{"error":"%b"}' % (problem or _TEXTS.get(status, status.phrase)).encode()
    framing = b"content-length: %d\r\nconnection: close\r\n" % len(text)
    kind = (b"content-type", b"application/json")
    return response_head(status, [kind], framing) + text


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
