"""Validation of a request's header fields (RFC 9113 section 8)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.http2.hpack import Field

_PSEUDO = frozenset((b":method", b":scheme", b":authority", b":path"))
_CONNECTION_SPECIFIC = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"[^\x00\r\n]*")
_LENGTH = re.compile(rb"[0-9]{1,18}")


class MalformedError(Exception):
    """The header fields are not a valid HTTP/2 request."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A valid request. `fields` are the regular ones, in order."""

    method: bytes
    path: bytes
    fields: tuple[Field, ...]
    content_length: int | None = None
    authority: bytes = b""


def read_request(fields: tuple[Field, ...]) -> HttpRequest:
    """Validate decoded header fields; raises `MalformedError`."""
    pseudo: dict[bytes, bytes] = {}
    regular: list[Field] = []
    for field in fields:
        name, value = field
        if name[:1] == b":":
            if regular or name in pseudo or name not in _PSEUDO:
                raise MalformedError("pseudo-header field that is unknown, repeated or late")
            pseudo[name] = value
        else:
            _check_field(name, value)
            regular.append(field)
    if not (pseudo.get(b":method") and pseudo.get(b":scheme") and pseudo.get(b":path")):
        raise MalformedError("request without method, scheme or path")
    return HttpRequest(
        pseudo[b":method"],
        pseudo[b":path"],
        tuple(regular),
        _content_length(regular),
        pseudo.get(b":authority", b""),
    )


def check_trailers(fields: tuple[Field, ...]) -> None:
    """Check that trailers are valid, without pseudo-fields; raises `MalformedError`."""
    for name, value in fields:
        _check_field(name, value)


def _check_field(name: bytes, value: bytes) -> None:
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise MalformedError("field with a character that is not allowed")
    if name in _CONNECTION_SPECIFIC or (name == b"te" and value != b"trailers"):
        raise MalformedError("field of a connection in a request")


def _content_length(fields: list[Field]) -> int | None:
    lengths = {value for name, value in fields if name == b"content-length"}
    if not lengths:
        return None
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        raise MalformedError("broken content-length")
    return int(length)
