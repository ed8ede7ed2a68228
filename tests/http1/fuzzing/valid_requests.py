"""Requests that are valid, and what a server has to understand of each."""

from __future__ import annotations

import random
import re
from typing import NamedTuple
from zlib import crc32

_METHODS = (b"GET", b"GET", b"POST", b"POST", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS")
_BODIES = (b"POST", b"PUT", b"DELETE")
_HANDLERS = (b"now", b"now", b"now", b"early", b"later", b"parts", b"pieces")
_FIELDS = (
    b"accept: */*",
    b"Accept-Encoding: gzip;q=0.5, identity",
    b"x-empty:",
    b"X-Spaces: \t padded \t ",
    b"x-bytes: \xff\xfe caf\xc3\xa9",
    b"x-tab: a\tb",
    b"!#$%&'*+.^_`|~09AZaz-: token",
    b"cookie: a=b; c=d",
    b"x-twice: 1",
    b"x-twice: 2",
    b"te: trailers",
    b"inference-header-content-length: 0",
    b"connection: keep-alive",
    b"x-long: " + b"y" * 3000,
)
_UPGRADE = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk"
_TRAILERS = (b"", b"", b"", b"x-trailer: 1\r\n", b"a: b\r\nhost: y\r\n")
_EXTENSIONS = (b"", b"", b"", b"", b";a", b";a=b", b';a="b c"')
_WHOLE = re.compile(rb"https?://[^/?#]*(?=/)", re.IGNORECASE)
"""What precedes the path in a target that is a whole URI."""


class Understood(NamedTuple):
    """What there is to understand of a request: its body by length and checksum.

    A target that is no path is not kept.
    """

    method: bytes
    target: bytes
    size: int
    checksum: int

    @classmethod
    def of(cls, method: bytes, target: bytes, body: bytes) -> Understood:
        """From a request as a parser reports it."""
        whole = _WHOLE.match(target)
        path, _, query = (target if whole is None else target[whole.end() :]).partition(b"?")
        kept = path + (b"?" + query if query else b"")
        return cls(method, kept if path[:1] == b"/" else b"", len(body), crc32(body))


class Request(NamedTuple):
    """The bytes of a request, and what is in them; behind a `last` one nothing is answered."""

    data: bytes
    understood: Understood
    last: bool = False


class ValidRequests:
    """Makes valid requests by chance."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.random = chance.random
        self._number = 0

    def below(self, bound: int) -> int:
        return int(self.random() * bound)

    def next(self) -> Request:
        """Another request, seldom the last of its connection."""
        self._number += 1
        method = self._chance.choice(_METHODS)
        target = b"/%b/%d" % (self._chance.choice(_HANDLERS), self._number)
        if self.random() < 0.2:
            target += self._chance.choice((b"?a=b", b"?%20&x=/", b"/%41/../x;y", b"/caf%C3%A9"))
        body = self._body() if method in _BODIES and self.random() < 0.8 else b""
        fields, last, version = self._fields(body, target)
        framed = self._framed(body, has_body=method in _BODIES, version=version)
        written = target if self.random() < 0.95 else b"http://here" + target
        self._chance.shuffle(fields)
        line = b"%b %b HTTP/%b" % (method, written, version)
        head = b"\r\n".join((line, *fields, b""))
        blank = b"\r\n" if self.random() < 0.03 else b""
        return Request(blank + head + framed, Understood.of(method, target, body), last)

    def _body(self) -> bytes:
        kind = self.random()
        if kind < 0.02:
            return self._chance.randbytes(4000) * (1 + self.below(50))
        if kind < 0.2:
            return b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
        if kind < 0.3:
            return b"\r\n\r\n0\r\n\r\n"
        return self._chance.randbytes(self.below(200))

    def _fields(self, body: bytes, target: bytes) -> tuple[list[bytes], bool, bytes]:
        """The fields but for those of the body, whether the request is the last, its version."""
        fields = [b"Host: here"]
        fields += [_FIELDS[self.below(len(_FIELDS))] for _ in range(self.below(6))]
        chance = self.random()
        if chance < 0.02:
            return [*fields, b"connection: close"], True, b"1.1"
        if chance < 0.03:
            return fields[:1], True, b"1.0"
        if chance < 0.05 and not target.startswith(b"/parts"):
            return [*fields[:1], b"connection: keep-alive"], False, b"1.0"
        if chance < 0.07 and not body:
            fields.append(_UPGRADE)
        if chance > 0.96 and body and not target.startswith(b"/early"):
            fields.append(b"expect: 100-continue")
        return fields, False, b"1.1"

    def _framed(self, body: bytes, *, has_body: bool, version: bytes) -> bytes:
        """The rest of the head, and the body."""
        if not body and not (has_body and self.random() < 0.5):
            return b"\r\n"
        if version == b"1.0" or self.random() < 0.5:
            return b"content-length: %d\r\n\r\n%b" % (len(body), body)
        return b"Transfer-Encoding: chunked\r\n\r\n" + self._chunked(body)

    def _chunked(self, body: bytes) -> bytes:
        parts: list[bytes] = []
        at = 0
        while at < len(body):
            size = 1 + self.below(min(len(body), 60) if len(body) < 3000 else 20_000)
            part = body[at : at + size]
            form = b"%x" if self.random() < 0.8 else b"%04X"
            extension = _EXTENSIONS[self.below(len(_EXTENSIONS))]
            parts += (form % len(part), extension, b"\r\n", part, b"\r\n")
            at += size
        return b"".join(parts) + b"0\r\n" + self._chance.choice(_TRAILERS) + b"\r\n"
