"""Answers of OpenAI's API: their failures, whole bodies, and server-sent events."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from penstock_backends.remote.grpc_connection import UNAVAILABLE, UNKNOWN, CallStatus
from penstock_backends.remote.http_connection import HttpCall
from penstock_backends.remote.http_endpoint import HttpEndpoint

_CODES = {
    400: 3,
    401: 16,
    403: 7,
    404: 5,
    405: 12,
    408: 4,
    409: 6,
    413: 3,
    422: 3,
    429: 8,
    499: 1,
    500: 13,
    501: 12,
    502: 14,
    503: 14,
    504: 4,
}
"""Codes of gRPC by the HTTP status that tells the same."""

_LONGEST_FAILURE = 64 << 10
_LONGEST_TEXT = 2000
LONGEST_EVENT = 4 << 20
"""Bytes of a server-sent event."""


def failure_of(status: int, headers: dict[bytes, bytes], body: bytes) -> CallStatus:
    """The end of a call that was answered with a failure, with the text that its body has."""
    text = failure_text(body) or f"HTTP status {status}"
    code = _CODES.get(status, 3 if 400 <= status < 500 else UNKNOWN)
    return CallStatus(code, text, headers)


def failure_text(body: bytes) -> str:
    """The message of a failure, in the forms that servers have; empty where there is none."""
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:_LONGEST_TEXT].decode("utf-8", "replace").strip()
    error = told.get("error", told) if isinstance(told, dict) else told
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail")
    return str(error)[:_LONGEST_TEXT] if error else ""


def connection_failed(reason: str, *, untouched: bool) -> CallStatus:
    """The end of a call that was not answered."""
    return CallStatus(UNAVAILABLE, reason, {}, untouched, ours=True)


class Question(HttpCall):
    """A call whose whole answer somebody waits for."""

    def __init__(self, limit: int) -> None:
        self.end: asyncio.Future[CallStatus] = asyncio.get_running_loop().create_future()
        self.body = bytearray()
        self._limit = limit
        self._status = 0
        self._headers: dict[bytes, bytes] = {}

    def begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status, self._headers = status, headers

    def received(self, data: bytes) -> None:
        if len(self.body) < self._limit:
            self.body += data

    def ended(self, reason: str, *, untouched: bool = False) -> None:
        if self.end.done():
            return
        if reason:
            status = connection_failed(reason, untouched=untouched)
        elif 200 <= self._status < 300:
            status = CallStatus(0)
        else:
            status = failure_of(self._status, self._headers, bytes(self.body))
        self.end.set_result(status)


async def ask(endpoint: HttpEndpoint, path: str, limit: int) -> tuple[CallStatus, Any]:
    """Ask an address by GET: the end of the call, and the JSON of the answer, if it is that."""
    question = Question(limit)
    endpoint.start(question, "GET", path, [(b"accept", b"application/json")])
    try:
        status = await question.end
    except asyncio.CancelledError:
        endpoint.cancel(question)
        raise
    endpoint.done()
    try:
        return status, orjson.loads(question.body)
    except orjson.JSONDecodeError:
        return status, None


class Failure:
    """The head and the beginning of the body of an answer that is a failure."""

    def __init__(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status, self._headers = status, headers
        self._body = bytearray()

    def add(self, data: bytes) -> None:
        """Add a part of the body."""
        if len(self._body) < _LONGEST_FAILURE:
            self._body += data

    def end(self) -> CallStatus:
        """The end of the call."""
        return failure_of(self._status, self._headers, bytes(self._body))


class Events:
    """The data of server-sent events, from a body that comes in pieces.

    Raises `ValueError` for an event that does not end.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Add a piece: the data of the events that are whole now, each of one line."""
        lines = (self._rest + data if self._rest else data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LONGEST_EVENT:
            raise ValueError(f"an event of more than {LONGEST_EVENT} bytes")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]
