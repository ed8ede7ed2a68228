"""`OpenAiRelay`: the ASGI application that hands exchanges of OpenAI's API on to the remote."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import orjson

from penstock.backend import (
    ASGI_EXTENSION,
    InferenceRequest,
    UnavailableError,
    UnsupportedError,
)
from penstock_backends.language_model.asgi import Message, Receive, Send
from penstock_backends.language_model.openai_refusal import refuse_body, refuse_path
from penstock_backends.remote.call_failures import error_of
from penstock_backends.remote.fleet import Fleet
from penstock_backends.remote.grpc_connection import CallStatus
from penstock_backends.remote.http_connection import HttpCall
from penstock_backends.remote.http_endpoint import HttpEndpoint
from penstock_backends.remote.openai_answers import connection_failed
from penstock_backends.remote.relayed_tokens import RelayedTokens
from penstock_backends.remote.settings import RemoteSettings

_PREFIX = "/v1"
_ASKED = (b"accept", b"content-type")
_ANSWERED = (b"content-type", b"retry-after", b"openai-processing-ms", b"x-request-id")
_AGAIN = (502, 503)
_MOST_HELD = 256 << 10
"""Bytes that wait for a slow client before no more is read."""


class OpenAiRelay:
    """Gives a request the remote's name of the model and this server's key; else it is untouched.

    What the remote does not take, it refuses itself, in its own words.
    """

    def __init__(self, settings: RemoteSettings, fleet: Fleet[HttpEndpoint]) -> None:
        self._settings = settings
        self._fleet = fleet

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one exchange."""
        path: str = scope["path"]
        if scope["method"] != "POST" or not path.startswith(f"{_PREFIX}/"):
            await refuse_path(send, path)
            return
        request: InferenceRequest = scope["extensions"][ASGI_EXTENSION]["request"]
        report = request.scope.report_usage
        tokens = None if report is None else RelayedTokens(report)
        body = self._renamed((await receive()).get("body", b""), path, tokens)
        if body is None:
            await refuse_body(send, "an object with 'model' is wanted")
            return
        if "adapter" in request.parameters:
            raise UnsupportedError("adapters of a remote model are entries of their own")
        relayed = _Relayed(self._fleet, tokens)
        left = asyncio.ensure_future(receive())
        left.add_done_callback(relayed.on_left)
        try:
            await self._relay(relayed, request, path, _fields(scope, request), body, send)
        finally:
            left.cancel()
            relayed.cancel()

    async def _relay(
        self,
        relayed: _Relayed,
        request: InferenceRequest,
        path: str,
        fields: list[tuple[bytes, bytes]],
        body: bytes,
        send: Send,
    ) -> None:
        for attempt in range(self._settings.retries + 1):
            endpoint = self._fleet.pick()
            if request.scope.timeline is not None:
                request.scope.timeline.facts["remote.address"] = str(endpoint.address)
            relayed.start(endpoint, path.removeprefix(_PREFIX), fields, body)
            await relayed.wait()
            refused = relayed.refused
            if refused is None or attempt == self._settings.retries:
                break
            if not self._fleet.may_retry(endpoint, refused):
                break
            self._fleet.retries += 1
        await relayed.answer(send)

    def _renamed(self, body: bytes, path: str, tokens: RelayedTokens | None) -> bytes | None:
        """The body with the remote's name of the model; `None` where it is no object."""
        try:
            given = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(given, dict):
            return None
        given["model"] = self._settings.model
        if tokens is not None:
            tokens.body(given, path)
        return orjson.dumps(given)


def _fields(scope: Message, request: InferenceRequest) -> list[tuple[bytes, bytes]]:
    fields = [(name, value) for name, value in scope["headers"] if name in _ASKED]
    if request.scope.timeline is not None:
        for name, value in request.scope.timeline.context.headers.items():
            fields.append((name.encode(), value.encode("latin-1", "replace")))
    return fields


class _Relayed(HttpCall):
    """An answer that is handed on piece by piece, as far as its reader keeps up."""

    def __init__(self, fleet: Fleet[HttpEndpoint], tokens: RelayedTokens | None) -> None:
        self._fleet = fleet
        self._tokens = tokens
        self._endpoint: HttpEndpoint | None = None
        self._address: Any = None
        self._news = asyncio.Event()
        self._clear()

    def _clear(self) -> None:
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._end: CallStatus | None = None
        self.connection = None
        self._news.clear()

    def start(
        self, endpoint: HttpEndpoint, path: str, fields: list[tuple[bytes, bytes]], body: bytes
    ) -> None:
        """Ask an address."""
        self._clear()
        self._endpoint, self._address = endpoint, endpoint.address
        endpoint.start(self, "POST", path, fields, body)

    @property
    def refused(self) -> CallStatus | None:
        """How the call failed before there was an answer, another server's included."""
        if self._status in _AGAIN:
            return CallStatus(14, "", self._headers)
        return self._end if not self._status else None

    def begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status, self._headers = status, headers
        if self._tokens is not None:
            self._tokens.begin(headers.get(b"content-type", b""))
        self._news.set()

    def received(self, data: bytes) -> None:
        if self._tokens is not None:
            data = self._tokens.feed(data)
        self._add(data)
        if self._held > _MOST_HELD and self.connection is not None:
            self.connection.pause()
        self._news.set()

    def _add(self, data: bytes) -> None:
        if data:
            self._pieces.append(data)
            self._held += len(data)

    def ended(self, reason: str, *, untouched: bool = False) -> None:
        self._end = connection_failed(reason, untouched=untouched) if reason else CallStatus(0)
        if self._tokens is not None and self._status:
            self._add(self._tokens.end())
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            failed = self._status in _AGAIN
            self._fleet.ended(endpoint, CallStatus(14) if failed else self._end)
        self._news.set()

    def on_left(self, _: object) -> None:
        """The client has left."""
        self.cancel()
        self._end = self._end or connection_failed("the client has left", untouched=False)
        self._news.set()

    def cancel(self) -> None:
        """Give up what is under way."""
        endpoint, self._endpoint = self._endpoint, None
        if self._tokens is not None:
            self._tokens.cut_off()
        if endpoint is not None:
            endpoint.cancel(self)

    async def wait(self) -> None:
        """Wait for news."""
        await self._news.wait()

    async def answer(self, send: Send) -> None:
        """Hand the answer on; raises `InferenceError` where there is none."""
        if not self._status:
            assert self._end is not None
            raise error_of(self._end, self._address)
        headers = [(name, value) for name, value in self._headers.items() if name in _ANSWERED]
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        while True:
            self._news.clear()
            while self._pieces:
                await self._hand_on(send)
            if self._end is not None:
                break
            await self._news.wait()
        if self._end.code:
            raise UnavailableError(f"remote {self._address}: {self._end.message}")
        await send({"type": "http.response.body", "body": b""})

    async def _hand_on(self, send: Send) -> None:
        pieces, self._pieces = self._pieces, deque()
        body = b"".join(pieces)
        await send({"type": "http.response.body", "body": body, "more_body": True})
        held, self._held = self._held, self._held - len(body)
        if held > _MOST_HELD >= self._held and self.connection is not None:
            self.connection.resume()
