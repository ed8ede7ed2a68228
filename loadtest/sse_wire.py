"""Server-sent events over HTTP/1.1, read with little work for each: nothing is decoded."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping

from loadtest.stream_tally import Call, Tally

_DONE = b"data: [DONE]"
_ERROR = b'data: {"error"'
_FAILED = b"event: error"


class SseWire:
    """A connection with one call at a time; `on_end` is told when it ends."""

    def __init__(
        self,
        target: str,
        path: str,
        tally: Tally,
        on_end: Callable[[SseWire], None],
        headers: Mapping[str, str],
    ) -> None:
        host, _, port = target.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = (
            f"POST {path} HTTP/1.1\r\nhost: {target}\r\ncontent-type: application/json\r\n"
            + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        ).encode()
        self._tally = tally
        self._on_end = on_end
        self._call = Call(0.0)
        self._buffer = bytearray()
        self._in_body = False
        self._half = False  # whether the last chunk ended within the end of an event

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection, with its call."""
        self._socket.close()

    def start(self, message: bytes) -> None:
        """Begin a call with this body."""
        self._call = Call(time.perf_counter())
        self._in_body = self._half = False
        self._socket.sendall(self._head + b"content-length: %d\r\n\r\n" % len(message) + message)

    def read(self) -> None:
        """Take what has come, and count it with the time of its coming."""
        received = self._socket.recv(1 << 18)
        now = time.perf_counter()
        if not received:
            raise SystemExit(f"the server closed the connection: {bytes(self._buffer)!r}")
        self._buffer += received
        if self._in_body or self._begin_body():
            self._read_chunks(now)

    def _begin_body(self) -> bool:
        """Whether the head of the answer has come, which is then checked."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._buffer[:end]).lower()
        if b" 200 " not in head.partition(b"\r\n")[0] + b" ":
            raise SystemExit(f"a call failed: {bytes(self._buffer)!r}")
        if b"transfer-encoding: chunked" not in head:
            raise SystemExit(f"the answer is no stream: {head!r}")
        del self._buffer[: end + 4]
        self._in_body = True
        return True

    def _read_chunks(self, now: float) -> None:
        buffer, at = self._buffer, 0
        while (line := buffer.find(b"\r\n", at)) >= 0:
            start = line + 2
            end = start + int(buffer[at:line].partition(b";")[0], 16)
            if len(buffer) < end + 2:
                break
            at = end + 2
            if end == start:
                del buffer[:at]
                self._tally.calls += 1
                self._on_end(self)
                return
            self._events(start, end, now)
        del buffer[:at]

    def _events(self, start: int, end: int, now: float) -> None:
        buffer, tally = self._buffer, self._tally
        events = buffer.count(b"\n\n", start, end) - buffer.count(_DONE, start, end)
        events += self._half and buffer[start] == 10
        self._half = buffer[end - 1] == 10 and not buffer.endswith(b"\n\n", start, end)
        if buffer.find(_ERROR, start, end) >= 0 or buffer.find(_FAILED, start, end) >= 0:
            raise SystemExit(f"an error came: {bytes(buffer[start:end])!r}")
        for _ in range(events):
            tally.message(self._call, now)
        tally.count_marks(buffer, start, end)
