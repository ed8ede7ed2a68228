"""The head of a request: its line and its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from httptools import HttpParserInvalidURLError, parse_url

Field = tuple[bytes, bytes]


class InvalidHeadError(Exception):
    """A head that the parser takes, and the server does not."""


class RequestHead:
    """A request line and its fields.

    `fields` are as sent, `headers` has their names in lower case; of equal names the first counts.
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
