"""The parser of requests: `httptools`, with limits, and with bodies behind requests to upgrade."""

from __future__ import annotations

from http import HTTPStatus

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserUpgrade,
    HttpRequestParser,
)

from penstock.http1.limits import HeadSize, HttpLimits
from penstock.http1.request_head import Field, InvalidHeadError, RequestHead, read_head

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
