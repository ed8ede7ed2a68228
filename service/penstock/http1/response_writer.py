"""The writer of one connection's responses: their heads, framing and bodies."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.buffer import Buffer
from penstock.http1.exchange import Exchange
from penstock.http1.request_head import Field
from penstock.http1.response_head import LAST_CHUNK, response_head
from penstock.http1.send_buffer import SendBuffer


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
