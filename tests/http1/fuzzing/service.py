"""What answers requests: every response says what was understood of its request."""

from __future__ import annotations

from collections import deque

from http1.fuzzing.valid_requests import Understood
from penstock.http1.connection import Connection
from penstock.http1.exchange import Exchange
from penstock.http1.request_head import RequestHead

_PIECE = 100
_PARTS = 5
TEXT = b"x" * 500
"""Part of a response that is streamed."""


class Service:
    """The exchanges of one connection; `later` are those that are answered by and by."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.open = self.made = 0
        self.later: deque[Answering] = deque()

    def begin(self, head: RequestHead) -> Exchange:
        """The exchange of a request."""
        self.open += 1
        return Answering(self, head)

    def turn(self) -> None:
        """Answer one of those that have waited."""
        if self.later:
            self.later.popleft().answer()


class Answering(Exchange):
    """Answers in the way that the first segment of the path says, mostly once all has come."""

    def __init__(self, service: Service, head: RequestHead) -> None:
        super().__init__(head)
        self._service = service
        self._kind = head.path.split("/")[1] if "/" in head.path else ""
        self._parts = 0

    @property
    def _connection(self) -> Connection:
        assert self._service.connection is not None
        return self._service.connection

    def on_begin(self) -> None:
        if self._kind == "early":
            self._respond(b"- -")
        elif self._kind == "pieces":
            self.on_body()
        else:
            self._connection.want_body(self, 1 << 30)
            self.on_body()

    def on_body(self) -> None:
        if self.answered or self.closed:
            return
        if not self.body.complete:
            if self._kind == "pieces" and self.body.received >= self.body.wanted:
                self._connection.want_body(self, self.body.received + _PIECE)
        elif self._kind == "later":
            self._service.later.append(self)
        else:
            self.answer()

    def answer(self) -> None:
        """Say what was understood."""
        if self.closed:
            return
        data = bytes(self.body.data)
        _, _, size, checksum = Understood.of(b"", b"", data)
        known = b"%d %d" % (size, checksum)
        if self._kind == "parts":
            self._connection.begin(self, 200, [self._field(known)])
            self.on_writable()
        else:
            self._respond(known)

    def on_writable(self) -> None:
        while self._kind == "parts" and self.answered and self._parts < _PARTS:
            self._parts += 1
            self._service.made += len(TEXT)
            if self._parts < _PARTS and not self._connection.send(self, TEXT):
                return
        if self._parts == _PARTS and not self.finished:
            self._parts += 1
            self._close()
            self._connection.end(self)

    def on_closed(self) -> None:
        self._close()

    def _respond(self, known: bytes) -> None:
        self._close()
        self._connection.respond(self, 200, [self._field(known)], [b"<", b">"])

    def _close(self) -> None:
        self._service.open -= 1

    def _field(self, known: bytes) -> tuple[bytes, bytes]:
        head = self.head
        target = head.path.encode("utf-8", "surrogateescape")
        target += b"?" + head.query if head.query else b""
        value = b"%b %b %b" % (head.method.encode(), target if target[:1] == b"/" else b"", known)
        self._service.made += len(value) + 200
        return b"x-request", value
