"""Requests of HTTP/1.1: the parser over `httptools`, with limits, their heads and their bodies.

Heads are cached: clients send the same bytes again and again, with other bodies behind them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import numpy as np
from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserInvalidURLError,
    HttpParserUpgrade,
    HttpRequestParser,
    parse_url,
)

from penstock.core.body_quota import BodyQuota, Charge
from penstock.core.buffer import Buffer
from penstock.http1.limits import HeadSize, HttpLimits
from penstock.protocol.credentials import CREDENTIAL_HEADERS

_VERSIONS = ("1.1", "1.0")
_FIELD_MARKS = len(b":\r\n")


class _RefusedError(Exception):
    """Ends the parsing of a request that the server does not take."""


class RequestSink:
    """The receiver of a parser's events."""

    def on_head(self, head: RequestHead) -> None:
        """A head is complete."""
        raise NotImplementedError

    def on_body_part(self, data: bytes) -> None:
        """Part of the body behind it."""
        raise NotImplementedError

    def on_end(self) -> None:
        """The end of the request."""
        raise NotImplementedError


class RequestParser:
    """Parses the bytes of a connection. The methods `on_...` are called by `httptools`.

    `problem` is the text of a refusal that needs more words than those of its status.
    """

    def __init__(self, limits: HttpLimits, sink: RequestSink) -> None:
        self._sink: RequestSink | None = sink
        self._head_size = HeadSize(limits)
        self._most_chunks = limits.max_chunks
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._target = b""
        self._fields: list[Field] = []
        self._length: int | None = 0  # of the body of the last head
        self._in_body = False
        self._refusal: HTTPStatus | None = None
        self.problem = ""
        self._upgrading = False  # the head of a request has ended that asks for it, with a body

    def room(self, size: int) -> int:
        """The number of `size` bytes that may be fed next; 0 if they are too many for a head."""
        return self._head_size.feed(size)

    @property
    def head_begun(self) -> bool:
        """Whether a part of a head has been fed, and not its end."""
        return self._head_size.begun

    def feed(self, data: bytes) -> HTTPStatus | None:
        """Parse bytes; returns the status of a refusal, after which no more may be fed."""
        parser = self._parser
        assert parser is not None
        try:
            parser.feed_data(data)
            return None
        except HttpParserUpgrade as upgrade:  # to a protocol that the server does not speak
            end: int = upgrade.args[0]
        except HttpParserCallbackError as error:
            if not isinstance(error.__context__, _RefusedError | InvalidHeadError):
                raise
            return self._refusal or HTTPStatus.BAD_REQUEST
        except HttpParserError:
            return HTTPStatus.BAD_REQUEST
        # Here, since what is handled would be the context of an error behind it.
        self._parser = HttpRequestParser(self)
        if self._upgrading:
            self._resume_body()
        rest = data[end:]
        return self.feed(rest) if rest else None

    def skip_body(self) -> None:
        """The body has been received in another way: what comes next is a request."""
        self._parser = HttpRequestParser(self)  # the other one still waits for the body
        self.on_message_complete()

    def close(self) -> None:
        """Break the reference cycle; nothing may be fed any more."""
        self._parser = self._sink = None

    def _resume_body(self) -> None:
        """Go on with the body of a request that asks for an upgrade, which the parser left out."""
        assert self._parser is not None
        length = self._length
        coding = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % coding)
        self._upgrading = False

    def on_url(self, url: bytes) -> None:
        """Part of the target."""
        if self._upgrading:
            return
        self._check(self._head_size.add(len(url)))
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field."""
        self._check(self._head_size.add_field(len(name) + len(value) + _FIELD_MARKS))
        if not self._in_body:  # trailers are dropped
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """The end of a head."""
        if self._upgrading:
            return
        parser, sink = self._parser, self._sink
        assert parser is not None
        assert sink is not None
        if parser.get_http_version() not in _VERSIONS:
            self._refusal = HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
            raise _RefusedError
        head = read_head(
            parser.get_method(),
            self._target,
            parser.get_http_version(),
            self._fields,
            keep_alive=parser.should_keep_alive(),
        )
        if "host" not in head.headers and head.version == "1.1":
            raise InvalidHeadError("no Host (RFC 9112, section 3.2)")
        self._length = head.content_length
        self._upgrading = parser.should_upgrade() and head.content_length != 0
        self._target, self._fields = b"", []
        self._head_size.complete()
        self._in_body = True
        sink.on_head(head)

    def on_chunk_header(self) -> None:
        """The size of a chunk."""
        if not self._head_size.add_chunk():
            self._refusal = HTTPStatus.BAD_REQUEST
            self.problem = (
                f"Chunked request body exceeds maximum of {self._most_chunks} non-empty chunks."
                " Send fewer or larger HTTP chunks."
            )
            raise _RefusedError

    def on_body(self, data: bytes) -> None:
        """Part of a body."""
        assert self._sink is not None
        self._head_size.body_received()
        self._sink.on_body_part(data)

    def on_message_complete(self) -> None:
        """The end of a request."""
        if self._upgrading:
            return
        assert self._sink is not None
        self._in_body = False
        self._head_size.begin()
        self._sink.on_end()

    def _check(self, fits: bool) -> None:
        if not fits:
            self._refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise _RefusedError


BACKLOG = 64 << 10
"""Bytes of a body beyond those that its reader waits for, up to which more are read."""


class Exchange:
    """A request, and how far its response is.

    `answered` says that the response has begun, `finished` that it has ended, `closed` that the
    client has gone. Derived classes override what the connection calls.
    """

    begun = False
    answered = False
    finished = False
    closed = False
    chunked = False
    continued = False
    sent = 0
    """Bytes of the response's body."""

    def __init__(self, head: RequestHead) -> None:
        self.head = head
        self.body = Body(head.content_length)

    @property
    def waits(self) -> bool:
        """Whether enough of its body waits for its reader."""
        body = self.body
        return not self.finished and body.received - body.wanted > BACKLOG

    def on_begin(self) -> None:
        """Answer the request, whose body may still be incomplete. Called once."""

    def on_body(self) -> None:
        """More of the body has arrived, or its end."""

    def on_writable(self) -> None:
        """The response may go on: see `SendBuffer.writable`."""

    def on_closed(self) -> None:
        """The client has gone before the end of the response. Called once."""


Field = tuple[bytes, bytes]


class InvalidHeadError(Exception):
    """A head that the parser takes, and the server does not."""


class RequestHead:
    """A request line and its fields.

    `fields` are as sent, `headers` has their names in lower case; of equal names the first counts,
    and credentials are joined, which makes none of them (`protocol.credentials`).

    `path` is as sent, without percent decoding, `query` what follows its question mark.
    `content_length` is the bytes of the body, `None` for one in chunks.
    """

    __slots__ = (
        "content_length",
        "expects_continue",
        "fields",
        "headers",
        "keep_alive",
        "method",
        "path",
        "query",
        "version",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query: bytes,
        version: str,
        fields: Sequence[Field],
        headers: Mapping[str, str],
        content_length: int | None,
        *,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.version = version
        self.fields = fields
        self.headers = headers
        self.content_length = content_length
        self.keep_alive = keep_alive
        self.expects_continue = expects_continue

    def copy(self) -> RequestHead:
        """Another head with the same request, for an exchange of its own."""
        return RequestHead(
            self.method,
            self.path,
            self.query,
            self.version,
            self.fields,
            self.headers,
            self.content_length,
            keep_alive=self.keep_alive,
            expects_continue=self.expects_continue,
        )


def read_head(
    method: bytes, target: bytes, version: str, fields: Sequence[Field], *, keep_alive: bool
) -> RequestHead:
    """The head of parsed parts. Raises `InvalidHeadError`."""
    headers = _by_name(fields)
    if b"#" in target:  # a fragment, which others would take for part of the path
        raise InvalidHeadError("a fragment (RFC 9112, section 3.2)")
    path, _, query = (target if target[:1] == b"/" else _origin_form(target)).partition(b"?")
    return RequestHead(
        method.decode("ascii"),
        path.decode("utf-8", "surrogateescape"),
        query,
        version,
        fields,
        headers,
        _content_length(headers, version),
        keep_alive=keep_alive,
        expects_continue="expect" in headers
        and headers["expect"].strip().lower() == "100-continue"
        and version == "1.1",  # RFC 9110, section 10.1.1
    )


def _content_length(headers: Mapping[str, str], version: str) -> int | None:
    if "transfer-encoding" not in headers:
        return int(headers.get("content-length", "0"))
    if version != "1.1" or headers["transfer-encoding"].strip().lower() != "chunked":
        raise InvalidHeadError("a coding that is not `chunked` (RFC 9112, section 6.1)")
    return None


def _by_name(fields: Sequence[Field]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in fields:
        key = name.decode("latin-1").lower()
        if key not in headers:
            headers[key] = value.decode("latin-1")
        elif key == "host":
            raise InvalidHeadError("more than one Host (RFC 9112, section 3.2)")
        elif key in CREDENTIAL_HEADERS:
            headers[key] += f", {value.decode('latin-1')}"
    return headers


def _origin_form(target: bytes) -> bytes:
    """The path and query of a target in absolute form (RFC 9112, section 3.2.2)."""
    if target == b"*":
        return target
    url: Any  # its types do not say that there may be no path, and no query
    try:
        url = parse_url(target)
    except HttpParserInvalidURLError as error:
        raise InvalidHeadError("no valid target") from error
    query: bytes | None = url.query
    path: bytes = url.path or b"/"
    return path if query is None else b"%b?%b" % (path, query)


_MOST = 256
"""Heads that are cached."""

_LONGEST = 2048
"""Bytes of the longest head that is cached."""

_END = b"\r\n\r\n"


class HeadCache:
    """Heads by their bytes, of all connections with the same limits.

    A cached head is of version 1.1, has a body of known length, keeps the connection, and asks for
    nothing else of it: after such a request a parser is where it was before.
    """

    def __init__(self) -> None:
        self._heads: dict[bytes, RequestHead] = {}

    def find(self, data: bytes) -> tuple[RequestHead, int] | None:
        """The head that these bytes begin with, if they are one request, and its length."""
        end = data.find(_END, 0, _LONGEST)
        if end < 0:
            return None
        size = end + len(_END)
        head = self._heads.get(data[:size])
        if head is None or head.content_length != len(data) - size:
            return None
        return head.copy(), size

    def add(self, data: bytes, head: RequestHead) -> None:
        """Cache a head that a parser has made of these bytes, from the first to the last."""
        if len(data) > _LONGEST or data.find(_END) != len(data) - len(_END):
            return
        if head.version != "1.1" or not head.keep_alive or not head.content_length:
            return
        if head.expects_continue or "upgrade" in head.headers or head.method == "CONNECT":
            return
        if len(self._heads) >= _MOST:
            self._heads.clear()
        self._heads[data] = head.copy()


_FIRST_PIECE = 1 << 20
"""Bytes to allocate at first for a large body; the system maps them as they are written."""


class Body:
    """The received bytes of one body.

    Memory grows with what arrives, whatever length the client has declared: `declared`, in bytes,
    `None` for a body in chunks. `wanted` is how many of its bytes its reader waits for. `quota`
    counts its bytes, if it is not small.
    """

    __slots__ = (
        "_charge",
        "_discarded",
        "_memory",
        "_only",
        "complete",
        "declared",
        "quota",
        "received",
        "wanted",
    )

    def __init__(self, declared: int | None) -> None:
        self.declared = declared
        self.received = 0
        self.complete = declared == 0
        self.wanted = 0
        self._only = b""  # all of it, while it came in one piece
        self._memory: memoryview | None = None
        self._discarded = False
        self.quota: BodyQuota | None = None
        self._charge: Charge | None = None

    @property
    def data(self) -> Buffer:
        """The bytes so far; they stay as they are while more arrive."""
        memory = self._memory
        return self._only if memory is None else memory[: self.received]

    def reserve(self, memory: memoryview) -> None:
        """Put the body, no byte of which has arrived yet, into this memory of its declared size."""
        self._memory = memory
        self._charge = None if self.quota is None else self.quota.open(memory, 0)

    def discard(self) -> None:
        """Forget the bytes, also those to come."""
        self._discarded = True
        self._memory = self._charge = None
        self._only = b""

    def feed(self, data: bytes) -> None:
        """Append bytes."""
        before = self.received
        self.received = before + len(data)
        if self._discarded:
            return
        if self._memory is None:
            if not before:
                self._only = data
                return
            self._only, data = b"", self._only + data
            before = 0
        self._room(self.received)[before : self.received] = data
        self._count()

    def memory(self) -> memoryview | None:
        """Memory for bytes that come next, for `filled`; `None` if they are to be fed."""
        if self._discarded or self.declared is None:
            return None
        if self._memory is None:
            only, self._only = self._only, b""
            self._room(self.received)[: self.received] = only
        return self._room(min(self.received + 1, self.declared))[self.received : self.declared]

    def filled(self, size: int) -> None:
        """Report that so many bytes were written into `memory`."""
        self.received += size
        self._count()

    def _room(self, needed: int) -> memoryview:
        """The memory, grown by doubling to hold `needed` bytes."""
        memory = self._memory
        size = 0 if memory is None else len(memory)
        if memory is None or size < needed:
            grown = self._larger(needed, size)
            if memory is not None:
                grown[:size] = memory
            self._memory = memory = grown
            if self.quota is not None:
                self._charge = self.quota.open(memory, size)
        return memory

    def _larger(self, needed: int, size: int) -> memoryview:
        """Memory for `needed` bytes and more, instead of `size`.

        The second is that of the whole body: copies of what has come would hold up others.
        """
        most = None if self.declared is None else max(self.declared, needed)
        if most is not None and size:
            with suppress(MemoryError):
                return np.empty(most, np.uint8).data
        larger = max(needed, 2 * size, _FIRST_PIECE)
        return np.empty(larger if most is None else min(larger, most), np.uint8).data

    def _count(self) -> None:
        """Count the bytes that have come into the memory."""
        if self._charge is not None and self.quota is not None:
            self.quota.add(self._charge, self.received - self._charge.size)
