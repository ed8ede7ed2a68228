"""HTTP/1.1 requests on one connection, one at a time; answers with a body or with events."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock_client.perf.wire.call import Call, Listener, Request
from penstock_client.perf.wire.endpoint import Endpoint
from penstock_client.perf.wire.events import Events, completion_tokens, error_text
from penstock_client.perf.wire.transport import Transport

_BUFFER = 1 << 18
_MOST_HEADS = 64  # that are remembered
_KEPT = 1 << 16  # bytes of a body that are looked at for errors and counts of tokens
_HEADER = re.compile(
    rb"\r\n(content-length|transfer-encoding|content-type|connection)[ \t]*:[ \t]*([^\r\n]*)"
)
_END = b"\r\n\r\n"  # of a head


class HttpError(Exception):
    """An answer that is not one of HTTP's."""


def request_head(
    endpoint: Endpoint, path: str, headers: Mapping[str, str], content_type: str
) -> bytes:
    """The head of requests to a path, but for the length of their bodies."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {endpoint.authority}"]
    lines += ["User-Agent: penstock-perf", f"Content-Type: {content_type}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n").encode()


def request(head: bytes, body: bytes) -> Request:
    """A request; its `head` ends before the blank line, and names no length."""
    return (b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body),)


class _Head(NamedTuple):
    """What the head of an answer says; `length` is -1 for a body that ends with the connection."""

    status: int
    length: int
    chunked: bool
    events: bool
    closes: bool


_NO_HEAD = _Head(0, -1, False, False, False)


class HttpWire:
    """A connection with one call at a time."""

    def __init__(self, endpoint: Endpoint, listener: Listener) -> None:
        self.transport = Transport(endpoint, "http/1.1")
        self._listener = listener
        self._call: Call | None = None
        self._view = memoryview(bytearray(_BUFFER))
        self._buffer = bytearray()  # what came and was not taken yet
        self._gone = False
        self._heads: dict[bytes, _Head] = {}  # those of answers are the same for many
        self._begin()

    def _begin(self) -> None:
        """Expect the head of an answer."""
        self._in_head = True
        self._head = _NO_HEAD
        self._left = -1  # bytes of the body that are still to come
        self._chunked = False
        self._events = Events()
        self._body = bytearray()

    @property
    def room(self) -> int:
        """One while nothing is under way."""
        return 0 if self._gone or self._call is not None else 1

    @property
    def under_way(self) -> Sequence[Call]:
        """The call that has not ended."""
        return [] if self._call is None else [self._call]

    def start(self, call: Call, request: Request) -> None:
        """Send a request, at once."""
        self._call = call
        self.transport.send(request[0])

    def flush(self) -> None:
        """Nothing waits."""

    def cancel(self, call: Call) -> None:
        """Give up a call, and with it the connection."""
        self._call = None
        self._gone = True
        self._listener.on_lost(self, "")

    def close(self) -> None:
        """Close the connection; nothing is reported."""
        self.transport.close()

    def read(self, wait: bool = False) -> None:
        """Take what has come, with the time of its coming."""
        more = True
        while more and not self._gone:
            received = self.transport.receive_into(self._view, wait)
            if received < 0:
                return
            now = time.perf_counter()
            if not received:
                self._at_end(now)
                return
            self._buffer += self._view[:received]
            try:
                self._take(now)
            except (HttpError, ValueError) as error:
                self._lost(now, f"not an answer of HTTP: {error}")
                return
            wait, more = False, self.transport.more

    def _take(self, now: float) -> None:
        while self._buffer and self._advance(now):
            if not self._in_head and not self._chunked and self._left == 0:
                self._ended(now)

    def _advance(self, now: float) -> bool:
        """Take a part of what came; False if more has to come first."""
        if self._call is None:
            raise HttpError("more came than was asked for")
        if self._in_head:
            return self._take_head()
        if self._chunked:
            return self._take_chunks(self._call, now)
        self._take_body(self._call, now)
        return True

    def _take_head(self) -> bool:
        end = self._buffer.find(_END)
        if end < 0:
            if len(self._buffer) > _KEPT:
                raise HttpError("its head has no end")
            return False
        block = bytes(self._buffer[:end])
        del self._buffer[: end + len(_END)]
        head = self._heads.get(block)
        if head is None:
            head = _read_head(block)
            if len(self._heads) < _MOST_HEADS:
                self._heads[block] = head
        if head.status < 200:
            return True
        self._in_head = False
        self._head, self._chunked, self._left = head, head.chunked, head.length
        return True

    def _take_chunks(self, call: Call, now: float) -> bool:
        """Take whole chunks; False if the last is not there yet."""
        found = whole_chunks(self._buffer)
        for start, end in found.spans:
            self._content(call, bytes(self._buffer[start:end]), now)
        del self._buffer[: found.used]
        if found.broken:
            raise HttpError("a chunk of no size")
        if found.ended:
            self._chunked, self._left = False, 0
        return found.ended

    def _take_body(self, call: Call, now: float) -> None:
        size = len(self._buffer) if self._left < 0 else min(self._left, len(self._buffer))
        self._content(call, bytes(self._buffer[:size]), now)
        del self._buffer[:size]
        if self._left > 0:
            self._left -= size

    def _content(self, call: Call, data: bytes, now: float) -> None:
        if not self._head.events:
            if len(self._body) < _KEPT:
                self._body += data
            return
        if call.whole is not None:
            call.whole.append(data)
        for _ in range(self._events.take(data)):
            self._listener.on_response(call, now)
        call.tokens, call.error = self._events.tokens, self._events.error

    def _ended(self, now: float) -> None:
        call, self._call = self._call, None
        assert call is not None
        head, body = self._head, bytes(self._body)
        fault = call.error
        if head.status >= 400:
            fault = f"HTTP status {head.status}: {error_text(body)}"
        elif not head.events and body.startswith(b'{"error"'):
            fault = error_text(body)
        elif not head.events:
            call.tokens = completion_tokens(body)
            self._listener.on_response(call, now)
        closes = self._gone = head.closes
        self._begin()
        self._listener.on_end(call, now, fault)
        if closes:
            self._listener.on_lost(self, "")

    def _at_end(self, now: float) -> None:
        """The server has closed the connection, which may be the end of a body."""
        if self._call is not None and not self._in_head and not self._chunked and self._left < 0:
            self._head = self._head._replace(closes=True)
            self._ended(now)
            return
        self._lost(now, "the server closed the connection")

    def _lost(self, now: float, reason: str) -> None:
        call, self._call = self._call, None
        self._gone = True
        if call is not None:
            self._listener.on_end(call, now, call.error or reason)
        self._listener.on_lost(self, reason)


def _read_head(block: bytes) -> _Head:
    first = block.partition(b"\r\n")[0]
    words = first.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1") or not words[1].isdigit():
        raise HttpError(first[:60].decode("latin-1"))
    status = int(words[1])
    headers = dict(_HEADER.findall(block.lower()))
    chunked = headers.get(b"transfer-encoding", b"").strip() == b"chunked"
    no_body = chunked or status in (204, 304)
    return _Head(
        status,
        0 if no_body else int(headers.get(b"content-length") or -1),
        chunked,
        status < 400 and headers.get(b"content-type", b"").startswith(b"text/event-stream"),
        headers.get(b"connection", b"").strip() == b"close",
    )


@dataclass(slots=True)
class Chunks:
    """Where the contents of the whole chunks lie that `data` begins with.

    `used` is where the first chunk begins that is not whole, or with `ended` what comes behind the
    last one and its trailers. With `broken` there is something else instead of a chunk.
    """

    spans: list[tuple[int, int]]
    used: int = 0
    ended: bool = False
    broken: bool = False


def whole_chunks(data: bytes | bytearray) -> Chunks:
    """The whole chunks at the start of `data`."""
    found = Chunks([])
    at = 0
    while (line := data.find(b"\r\n", at)) >= 0:
        size = _size(data[at:line])
        if size < 0:
            found.broken = True
            break
        start = line + 2
        at = start + size + 2
        if not size:
            end = data.find(b"\r\n\r\n", line)  # of the trailers, mostly none
            if end >= 0:
                found.used, found.ended = end + 4, True
            break
        if at > len(data):
            break
        found.spans.append((start, at - 2))
        found.used = at
    return found


def _size(line: bytes | bytearray) -> int:
    """The size in the line in front of a chunk, before its extensions; negative without one."""
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        return -1
