"""Server-sent events over HTTP/1.1, read with little work for each: nothing is decoded.

Nearly all that comes is whole events in whole chunks, which are counted by their ends. Only the
beginning and the end of a call are looked at, so that no failed call is measured.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

from loadtest.wires.http1 import Http1Wire

_EVENT_END = b"\n\n"
_CHUNK_END = b"\n\n\r\n"  # of an event and of its chunk; within an event there is no "\r"
_LAST_CHUNK = b"0\r\n\r\n"
_CHUNK_EDGE = re.compile(rb"\r\n[0-9a-fA-F]+\r\n")
_LATEST = 4  # reads: the last token, the usage, the end of events, that of chunks
_ROLE = b'"delta":{"role":"assistant","content":""}'
_WITHOUT_TOKENS = (b"data: [DONE]", b'"choices":[]', b'"delta":{}')
_ERRORS = (b'data: {"error"', b"event: error")


class SseWire(Http1Wire):
    """A connection with one stream of events at a time."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._latest = deque[bytes](maxlen=_LATEST)

    def _take(self, received: bytes, now: float) -> None:
        if self._call.last and not self._rest and received.endswith(_CHUNK_END):
            self._latest.append(received)
            self._count(received.count(_EVENT_END), received, now)
        else:
            self._take_edge(received, now)

    def _began(self, head: bytes) -> None:
        self._latest.clear()
        if b"transfer-encoding: chunked" not in head:
            raise SystemExit(f"the answer is no stream: {head!r}")

    def _count(self, events: int, received: bytes, now: float) -> None:
        call, tally = self._call, self._tally
        for _ in range(events):
            tally.message(call, now)
        tally.count_marks(received, 0, len(received))

    def _take_edge(self, received: bytes, now: float) -> None:
        """Take the beginning or the end of a call, or what was cut on its way."""
        body = self._body(received)
        if not self._in_body:
            return
        ended = body.endswith(_LAST_CHUNK)
        size = len(body) if ended else body.rfind(_CHUNK_END) + len(_CHUNK_END)
        if size < len(_CHUNK_END):
            self._rest = body
            return
        events, self._rest = _CHUNK_EDGE.sub(b"", body[:size]), body[size:]
        self._latest.append(events)
        count = events.count(_EVENT_END) - (0 if self._call.last else events.count(_ROLE))
        self._count(count, events, now)
        if ended:
            self._end(now)

    def _end(self, now: float) -> None:
        last = b"".join(self._latest)
        if any(error in last for error in _ERRORS):
            raise SystemExit(f"an error came: {last!r}")
        self._tally.messages -= sum(map(last.count, _WITHOUT_TOKENS))
        self._ended(last, now)
