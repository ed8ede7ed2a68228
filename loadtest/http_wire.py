"""Calls over HTTP/1.1 that are answered at once, read with little work: nothing is decoded."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Mapping

from loadtest.stream_tally import Call, Tally

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class HttpWire:
    """A connection with one call at a time; `on_end` is told when it ends."""

    def __init__(
        self,
        target: str,
        path: str,
        tally: Tally,
        on_end: Callable[[HttpWire], None],
        headers: Mapping[str, str],
    ) -> None:
        host, _, port = target.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = (
            f"POST {path} HTTP/1.1\r\nhost: {target}\r\ncontent-type: application/json\r\n"
            + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        ).encode()
        self._message = self._request = b""
        self._tally = tally
        self._on_end = on_end
        self._start = 0.0
        self._buffer = bytearray(1 << 20)
        self._received = self._expected = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection, with its call."""
        self._socket.close()

    def start(self, message: bytes) -> None:
        """Begin a call with this body."""
        if message is not self._message:
            self._message = message
            self._request = self._head + b"content-length: %d\r\n\r\n" % len(message) + message
        self._received = self._expected = 0
        self._start = time.perf_counter()
        self._socket.sendall(self._request)

    def read(self) -> None:
        """Take what has come; the end of the answer is counted with the time of its coming."""
        if self._received == len(self._buffer):
            self._buffer += bytes(len(self._buffer))
        with memoryview(self._buffer) as view:
            received = self._socket.recv_into(view[self._received :])
        if not received:
            raise SystemExit(f"the server closed the connection: {self._text()!r}")
        self._received += received
        expected = self._expected or self._read_head()
        if expected and self._received >= expected:
            self._tally.message(Call(self._start), time.perf_counter())
            self._tally.calls += 1
            self._on_end(self)

    def _read_head(self) -> int:
        """The size of the whole answer, once its head has come; 0 before."""
        end = self._buffer.find(b"\r\n\r\n", 0, self._received)
        if end < 0:
            return 0
        length = _LENGTH.search(self._buffer, 0, end + 2)
        if self._buffer.find(b" 200 ", 0, 16) < 0 or length is None:
            raise SystemExit(f"a call failed: {self._text()!r}")
        self._expected = end + 4 + int(length[1])
        return self._expected

    def _text(self) -> bytes:
        return bytes(self._buffer[: min(self._received, 1000)])
