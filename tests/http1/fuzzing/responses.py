"""A reader of responses that takes nothing but what is well formed."""

from __future__ import annotations

import re
from typing import NamedTuple

_LINE = re.compile(rb"HTTP/1\.1 ([1-5]\d\d) [A-Za-z -]+\r\n")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([^\x00-\x08\x0a-\x1f]*)\r\n")
_CHUNK = re.compile(rb"([0-9a-f]+)\r\n")


class Response(NamedTuple):
    """A final response: `ends` says that the connection is closed behind it."""

    status: int
    fields: dict[bytes, bytes]
    body: bytes

    @property
    def ends(self) -> bool:
        return self.fields.get(b"connection") == b"close"


class _IncompleteError(Exception):
    """More bytes are to come."""


def read_responses(data: bytes, *, ended: bool) -> tuple[list[Response], int]:
    """The final responses in `data`, and how many were 100 (Continue).

    Raises `AssertionError` for anything that is not well formed. The last may be incomplete.
    `ended` says that the connection is closed.
    """
    found: list[Response] = []
    at = continues = 0
    while at < len(data):
        assert not found or not found[-1].ends, "a response behind the last"
        try:
            status, fields, start = _head(data, at)
            if status == 100:
                continues += 1
                at = start
                continue
            body, at = _body(data, start, fields, ended=ended)
        except _IncompleteError:
            break
        found.append(Response(status, fields, body))
    return found, continues


def _head(data: bytes, at: int) -> tuple[int, dict[bytes, bytes], int]:
    end = data.find(b"\r\n\r\n", at)
    if end < 0:
        raise _IncompleteError
    line = _LINE.match(data, at)
    assert line, data[at : end + 4]
    fields: dict[bytes, bytes] = {}
    at = line.end()
    while at < end + 2:
        field = _FIELD.match(data, at)
        assert field, data[at : end + 4]
        assert field[1].lower() not in fields, f"{field[1]!r} twice"
        fields[field[1].lower()] = field[2]
        at = field.end()
    return int(line[1]), fields, end + 4


def _body(data: bytes, at: int, fields: dict[bytes, bytes], *, ended: bool) -> tuple[bytes, int]:
    length, coding = fields.get(b"content-length"), fields.get(b"transfer-encoding")
    assert length is None or coding is None, "two lengths"
    if fields.get(b"x-request", b"").startswith(b"HEAD "):
        return b"", at
    if coding is not None:
        assert coding == b"chunked", coding
        return _chunked(data, at)
    if length is None:
        assert fields.get(b"connection") == b"close", "a body without an end"
        if not ended:
            raise _IncompleteError
        return data[at:], len(data)
    end = at + int(length)
    if end > len(data):
        raise _IncompleteError
    return data[at:end], end


def _chunked(data: bytes, at: int) -> tuple[bytes, int]:
    body = bytearray()
    while True:
        if data.find(b"\r\n", at) < 0:
            raise _IncompleteError
        line = _CHUNK.match(data, at)
        assert line, data[at : at + 40]
        start, size = line.end(), int(line[1], 16)
        at = start + size + 2
        if at > len(data):
            raise _IncompleteError
        assert data[at - 2 : at] == b"\r\n", "a chunk without an end"
        if not size:
            return bytes(body), at
        body += data[start : at - 2]
