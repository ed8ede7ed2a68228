"""Whole answers over HTTP/1.1: a call is one message, with the usage that it counts."""

from __future__ import annotations

import re

from loadtest.wires.http1 import Http1Wire

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)")


class AnswerWire(Http1Wire):
    """A connection with one call at a time, whose answer is not a stream."""

    def _take(self, received: bytes, now: float) -> None:
        body = self._body(received)
        if not self._in_body or len(body) < self._length:
            self._rest = body or self._rest
            return
        self._tally.message(self._call, now)
        self._ended(body, now)

    def _began(self, head: bytes) -> None:
        length = _LENGTH.search(head)
        if length is None:
            raise SystemExit(f"the answer has no length: {head!r}")
        self._length = int(length[1])
