"""`Http1Wire`: a connection of HTTP/1.1 with one call at a time, read with little work."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from loadtest.stream_tally import Call, Tally
from loadtest.wires.tcp import connect

_AT_ONCE = 1 << 16  # bytes
_USAGE = re.compile(rb'"completion_tokens": ?(\d+)')


class Http1Wire(ABC):
    """A connection; `on_end` is told when its call ends."""

    def __init__(
        self,
        target: str,
        path: str,
        tally: Tally,
        on_end: Callable[[Any], None],
        headers: Mapping[str, str],
        receive_buffer: int = 0,
    ) -> None:
        self._socket = connect(target, receive_buffer)
        self._head = (
            f"POST {path} HTTP/1.1\r\nhost: {target}\r\ncontent-type: application/json\r\n"
            + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        ).encode()
        self._tally = tally
        self._on_end = on_end
        self._call = Call(0.0)
        self._rest = b""  # of what came, and was not counted yet
        self._in_body = False

    def fileno(self) -> int:
        """The descriptor of the socket, for a poll."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection, with its call."""
        self._socket.close()

    def start(self, message: bytes) -> None:
        """Begin a call with this body."""
        self._call = Call(time.perf_counter())
        self._in_body = False
        self._socket.sendall(self._head + b"content-length: %d\r\n\r\n" % len(message) + message)

    def read(self) -> None:
        """Take what has come, and count it with the time of its coming."""
        received = self._socket.recv(_AT_ONCE)
        self._take(received, time.perf_counter())

    @abstractmethod
    def _take(self, received: bytes, now: float) -> None:
        """Count what has come."""

    @abstractmethod
    def _began(self, head: bytes) -> None:
        """Check the head of an answer, in lower case, of which the status is 200."""

    def _body(self, received: bytes) -> bytes:
        """All of the body that was not counted, with this; empty before it has begun."""
        if not received:
            raise SystemExit(f"the server closed the connection: {self._rest!r}")
        received = self._rest + received
        if self._in_body:
            return received
        head, end, body = received.partition(b"\r\n\r\n")
        if not end:
            self._rest = received
            return b""
        if b" 200 " not in head.partition(b"\r\n")[0] + b" ":
            raise SystemExit(f"a call failed: {received!r}")
        self._in_body, self._rest = True, body
        self._began(head.lower())
        return body

    def _ended(self, last: bytes, now: float) -> None:
        """The call has ended; the usage that the answer counts, if any, is in its last bytes."""
        if usage := _USAGE.findall(last):
            self._tally.tokens += int(usage[-1])
        self._rest = b""
        self._tally.ended(self._call, now)
        self._on_end(self)
