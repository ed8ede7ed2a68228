"""The head of a response as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from penstock.http1.request_head import Field

_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

LAST_CHUNK = b"0\r\n\r\n"


_TEXTS = {HTTPStatus.SERVICE_UNAVAILABLE: "Server exiting"}
"""Texts of errors that are not the phrase of their status."""


def response_head(status: int, fields: Sequence[Field], framing: bytes) -> bytes:
    """The bytes of a head; `framing` is complete lines of it.

    Raises `ValueError` for a field that holds a line break, which would begin another one.
    """
    lines = [_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    for name, value in fields:
        lines += (name, b": ", value, b"\r\n")
    lines += (framing, b"\r\n")
    head = b"".join(lines)
    if head.count(b"\n") != len(fields) + 2 + framing.count(b"\n"):
        raise ValueError("a header field holds a line break")
    return head


def error_response(status: HTTPStatus, problem: str = "") -> bytes:
    """A whole response that ends its connection, with a text as of all errors (H-27)."""
    text = b'{"error":"%b"}' % (problem or _TEXTS.get(status, status.phrase)).encode()
    framing = b"content-length: %d\r\nconnection: close\r\n" % len(text)
    kind = (b"content-type", b"application/json")
    return response_head(status, [kind], framing) + text
