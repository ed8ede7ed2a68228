"""HTTP/1.1 requests on one connection, one at a time; answers with a body or with events."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.perf.wire.call import Call, Listener, Request
from penstock.perf.wire.endpoint import Endpoint
from penstock.perf.wire.transport import Transport

_BUFFER = 1 << 18
_MOST_HEADS = 64  # that are remembered
_KEPT = 1 << 16  # bytes of a body that are looked at for errors and counts of tokens
_ERROR = re.compile(rb'"error"\s*:\s*(\{.*\}|"(?:[^"\\]|\\.)*")', re.DOTALL)
_MESSAGE = re.compile(rb'"message"\s*:\s*"((?:[^"\\]|\\.)*)"')
_COMPLETION_TOKENS = re.compile(rb'"completion_tokens"\s*:\s*(\d+)')
# An event of OpenAI's that brings no text: the role at the start, the reason of the end, the usage.
_CHOICES = re.compile(rb'"choices"\s*:')
_TEXT = re.compile(rb'"(?:content|text|reasoning_content|reasoning)"\s*:\s*"(?!")')


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


@dataclass(frozen=True, slots=True)
class _Head:
    """What the head of an answer says; `length` is -1 for a body that ends with the connection."""

    status: int
    length: int
    chunked: bool
    events: bool
    closes: bool


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
        self._status = 0
        self._left = -1  # bytes of the body, or of the chunk, that are still to come
        self._chunked = self._events = self._closes = False
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
            try:
                self._take(self._view[:received], now)
            except (HttpError, ValueError) as error:
                self._lost(now, f"not an answer of HTTP: {error}")
                return
            wait, more = False, self.transport.more

    def _take(self, data: memoryview, now: float) -> None:
        self._buffer += data
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
            return self._take_chunks(now)
        self._take_body(now)
        return True

    def _take_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _KEPT:
                raise HttpError("its head has no end")
            return False
        block = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        head = self._heads.get(block)
        if head is None:
            head = _read_head(block)
            if len(self._heads) < _MOST_HEADS:
                self._heads[block] = head
        self._status = head.status
        if self._status < 200:
            return True
        self._in_head = False
        self._chunked, self._events, self._closes = head.chunked, head.events, head.closes
        self._left = head.length
        return True

    def _take_chunks(self, now: float) -> bool:
        """Take whole chunks; False if the last is not there yet."""
        buffer, at = self._buffer, 0
        while (line := buffer.find(b"\r\n", at)) >= 0:
            start = line + 2
            end = start + int(buffer[at:line].partition(b";")[0], 16)
            if len(buffer) < end + 2:
                break
            at = end + 2
            if end == start:
                del buffer[:at]
                self._chunked, self._left = False, 0
                return True
            self._content(bytes(buffer[start:end]), now)
        del buffer[:at]
        return False

    def _take_body(self, now: float) -> None:
        size = len(self._buffer) if self._left < 0 else min(self._left, len(self._buffer))
        self._content(bytes(self._buffer[:size]), now)
        del self._buffer[:size]
        if self._left > 0:
            self._left -= size

    def _content(self, data: bytes, now: float) -> None:
        if not self._events:
            if len(self._body) < _KEPT:
                self._body += data
            return
        self._body += data
        *events, rest = self._body.replace(b"\r\n", b"\n").split(b"\n\n")
        self._body = rest
        for event in events:
            self._event(bytes(event), now)

    def _event(self, event: bytes, now: float) -> None:
        assert self._call is not None
        call = self._call
        if b"data: [DONE]" in event:
            return
        if event.startswith((b'data: {"error"', b"event: error")):
            call.error = call.error or _error_text(event)
            return
        if found := _COMPLETION_TOKENS.search(event):
            call.tokens = int(found[1])
        if _CHOICES.search(event) and not _TEXT.search(event):
            return
        if b"data:" in event:
            self._listener.on_response(call, now)

    def _ended(self, now: float) -> None:
        call, self._call = self._call, None
        assert call is not None
        body = bytes(self._body)
        fault = call.error
        if self._status >= 400:
            fault = f"HTTP status {self._status}: {_error_text(body)}"
        elif not self._events and body.startswith(b'{"error"'):
            fault = _error_text(body)
        elif not self._events:
            if counted := _COMPLETION_TOKENS.search(body):
                call.tokens = int(counted[1])
            self._listener.on_response(call, now)
        closes = self._closes
        self._begin()
        if closes:
            self._gone = True
        self._listener.on_end(call, now, fault)
        if closes:
            self._listener.on_lost(self, "")

    def _at_end(self, now: float) -> None:
        """The server has closed the connection, which may be the end of a body."""
        if self._call is not None and not self._in_head and not self._chunked and self._left < 0:
            self._closes = True
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
    first, *lines = block.split(b"\r\n")
    words = first.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1") or not words[1].isdigit():
        raise HttpError(first[:60].decode("latin-1"))
    status = int(words[1])
    headers = dict(_header(line) for line in lines)
    chunked = headers.get(b"transfer-encoding", b"").lower() == b"chunked"
    no_body = chunked or status in (204, 304)
    return _Head(
        status,
        0 if no_body else int(headers.get(b"content-length") or -1),
        chunked,
        headers.get(b"content-type", b"").startswith(b"text/event-stream"),
        headers.get(b"connection", b"").lower() == b"close",
    )


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.strip().lower(), value.strip()


def _error_text(body: bytes) -> str:
    """What an error says: of KServe's form or of OpenAI's, or the body as it is."""
    found = _ERROR.search(body)
    text = found[1] if found else body[:300]
    if message := _MESSAGE.search(text):
        text = message[1]
    return text.decode("utf-8", "replace").strip().strip('"') or "without a text"
