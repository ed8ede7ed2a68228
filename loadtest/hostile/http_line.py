"""`HttpLine`: one request of HTTP/1.1 over a plain socket, whose head and body are any bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from loadtest.hostile.line import CLOSED, Line

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_PIECE = 1 << 18  # bytes
_SHOWN = 160


@dataclass(frozen=True, slots=True)
class HttpSending:
    """The requests of a connection: method, path and body, and further header fields.

    With a `pause` it goes a byte at a time. With `patience` the client leaves when it has sent
    this, and has waited so long for an answer. `length` is the announced one, `unpacked` the size
    of a compressed body.
    """

    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    query: str = ""
    length: int | None = None
    unpacked: int = 0
    pause: float = 0.0
    patience: float | None = None
    connections: int = 1


class HttpLine(Line):
    """A connection with one request."""

    def __init__(
        self,
        port: int,
        method: str,
        path: str,
        sending: HttpSending,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(port, 1, sending.patience)
        names = {name.lower() for name, _ in sending.headers}
        lines = [f"{method} {path}{sending.query} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in (*headers, *sending.headers)]
        if "transfer-encoding" not in names:
            length = len(sending.body) if sending.length is None else sending.length
            lines.append(f"Content-Length: {length}")
        self._out += ("\r\n".join(lines) + "\r\n\r\n").encode()
        self._rest = memoryview(sending.body)
        self._pause = sending.pause
        self._due = 0.0
        self._received = bytearray()

    @property
    def _sent_all(self) -> bool:
        return not self._rest

    def _next(self, now: float) -> bytes:
        size = _PIECE
        if self._pause:
            if now < self._due:
                return b""
            self._due, size = now + self._pause, 1
        piece, self._rest = bytes(self._rest[:size]), self._rest[size:]
        return piece

    def _take(self, received: bytes) -> None:
        self._received += received
        head, end, body = bytes(self._received).partition(b"\r\n\r\n")
        if not end:
            return
        length = _LENGTH.search(head)
        if length is None or len(body) >= min(int(length[1]), _SHOWN):
            self._end(_answer(head, body))

    def _end(self, answer: str) -> None:
        head, end, body = bytes(self._received).partition(b"\r\n\r\n")
        super()._end(_answer(head, body) if end and answer.startswith(CLOSED) else answer)


def _answer(head: bytes, body: bytes) -> str:
    status = _STATUS.match(head)
    if status is None:
        return f"no HTTP: {head[:_SHOWN]!r}"
    text = " ".join(body[:_SHOWN].decode(errors="replace").split())
    return f"{status[1].decode()}: {text}" if text and status[1] != b"200" else status[1].decode()
