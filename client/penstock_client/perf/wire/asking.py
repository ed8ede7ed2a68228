"""Single questions to a server, outside of the load: over gRPC, and as JSON over HTTP."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Mapping
from contextlib import closing
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPSConnection
from typing import Any

from penstock_client.perf.wire.call import Call, Wire
from penstock_client.perf.wire.endpoint import Endpoint
from penstock_client.perf.wire.grpc import GrpcWire, request_head
from penstock_client.perf.wire.outgoing import framed

_SECONDS = 30.0
_UNKNOWN = "UNIMPLEMENTED: "  # begins the error of a method of gRPC that a server does not have
_UNKNOWN_PATH = (400, 404, 405, 501)  # statuses by which servers say so of a path


class NoAnswerError(Exception):
    """No server answers, or one that speaks another protocol."""


class RefusedError(Exception):
    """A server answered with an error; the message is its text."""


class UnknownQuestionError(RefusedError):
    """A server answered that it has no such method or path."""


def ask_grpc(
    endpoint: Endpoint,
    method: str,
    message: bytes,
    metadata: Mapping[str, str],
    seconds: float = _SECONDS,
) -> bytes:
    """The answer to one unary call within so many seconds.

    Raises `NoAnswerError` or `RefusedError`.
    """
    asked = _Asked()
    try:
        wire = GrpcWire(endpoint, asked)
    except OSError as error:
        raise NoAnswerError(_reason(error)) from error
    try:
        call = Call(0, 0, 0.0, 0.0, streamed=False)
        call.whole, call.in_frames = [], False
        wire.start(call, framed(request_head(endpoint, method, metadata), message))
        wire.flush()
        _read_to_end(wire, asked, seconds)
    finally:
        wire.close()
    if asked.lost:
        raise NoAnswerError(asked.lost)
    if asked.error.startswith(_UNKNOWN):
        raise UnknownQuestionError(asked.error)
    if asked.error or not call.whole:
        raise RefusedError(asked.error or "the answer is empty")
    return call.whole[0]


def ask_json(
    endpoint: Endpoint, method: str, path: str, headers: Mapping[str, str], body: Any = None
) -> Any:
    """The answer to a request with JSON; raises `NoAnswerError` or `RefusedError`."""
    sent = None if body is None else json.dumps(body).encode()
    try:
        with closing(_connection(endpoint)) as connection:
            connection.request(method, path, sent, dict(headers))
            answer = connection.getresponse()
            content = answer.read()
    except OSError as error:
        raise NoAnswerError(_reason(error)) from error
    except UnicodeError as error:  # of a header that HTTP has no letters for
        raise NoAnswerError(f"this cannot be sent: {error}") from error
    except BadStatusLine as error:
        raise NoAnswerError("it does not speak HTTP: is this its gRPC port?") from error
    except HTTPException as error:
        raise NoAnswerError(f"not an answer of HTTP: {error or type(error).__name__}") from error
    return _content(answer.status, content)


def _connection(endpoint: Endpoint) -> HTTPConnection:
    """A connection to be opened; raises `OSError` for files of certificates."""
    host, port = endpoint.host, endpoint.port
    if not endpoint.secure:
        return HTTPConnection(host, port, timeout=_SECONDS)
    return HTTPSConnection(host, port, timeout=_SECONDS, context=endpoint.context("http/1.1"))


def _content(status: int, content: bytes) -> Any:
    try:
        value = json.loads(content) if content.strip() else {}
    except ValueError:
        value = content.decode("utf-8", "replace")[:300]
    if status >= 400:
        error = value.get("error", value) if isinstance(value, dict) else value
        text = error.get("message", error) if isinstance(error, dict) else error
        kind = UnknownQuestionError if status in _UNKNOWN_PATH else RefusedError
        raise kind(f"HTTP status {status}: {text}")
    return value


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()


def _read_to_end(wire: GrpcWire, asked: _Asked, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not (asked.ended or asked.lost):
        left = end - time.monotonic()
        if left <= 0:
            raise NoAnswerError(f"no answer within {seconds:g} s")
        waits = [wire.transport] if wire.transport.blocked else []
        readable, writable, _ = select.select([wire.transport], waits, [], left)
        if writable:
            wire.transport.flush()
        if readable:
            wire.read()


class _Asked:
    """The listener of one call."""

    def __init__(self) -> None:
        self.ended = False
        self.error = ""
        self.lost = ""

    def on_response(self, call: Call, now: float) -> None:
        """The call itself keeps what came."""

    def on_end(self, call: Call, now: float, error: str) -> None:
        self.ended = True
        self.error = error

    def on_lost(self, wire: Wire, reason: str) -> None:
        self.lost = reason
