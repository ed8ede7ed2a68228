"""`OpenAiApplication`: an ASGI application of a few routes, whose answers end with their client."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import uuid4

from penstock.backend import ASGI_DESCRIPTION, ASGI_EXTENSION, InferenceError
from penstock_backends.language_model.asgi import Receive, Send, send_json
from penstock_backends.openai_kit.errors import ApiError, api_error
from penstock_backends.openai_kit.json_body import BodyReader, description

logger = logging.getLogger(__name__)

_LONGEST_ID: Final = 128
_LINE_ENDS: Final = re.compile("[\x85\u2028\u2029]")
_EVENTS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request: its body, and its headers by name in lower case.

    `known` has facts from the server: `request`, as the server has admitted it, and `infer`,
    which gives the model a request with tensors. It is empty outside a server.
    """

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Findings of the server in the request: `adapter`, and `unknown_fields`."""
        request = self.known.get("request")
        return {} if request is None else request.parameters

    @property
    def request_id(self) -> str:
        """The client's `x-request-id` where it is plain text, else a new one."""
        given = self.headers.get("x-request-id", "")
        plain = given.isascii() and given.isprintable() and 0 < len(given) <= _LONGEST_ID
        return given if plain else uuid4().hex


@dataclass(frozen=True, slots=True)
class EventStream:
    """Server-sent events, each item one or several of them, whole.

    `close` releases what they come from, also where no reader has begun.
    """

    events: AsyncGenerator[bytes, None]
    close: Callable[[], Awaitable[None]]


def event_bytes(text: str) -> bytes:
    """Events as bytes, with all that some readers take for the end of a line escaped as in JSON.

    Such readers split decoded text as Python's `splitlines` does.
    """
    if not text.isascii() and _LINE_ENDS.search(text) is not None:
        text = _LINE_ENDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text.encode()


Answer = bytes | EventStream
"""A JSON document, or a stream of events."""

Handler = Callable[[Exchange], Awaitable[Answer]]


class Route(NamedTuple):
    """The handler of a path, and the readers of bodies that it takes: one for each form."""

    handler: Handler
    readers: Sequence[BodyReader]


class OpenAiApplication:
    """Routes POST requests by path. Bodies are at most `longest_body` bytes.

    A handler is cancelled, and its stream closed, when the client leaves. The server, which asks
    at `ASGI_DESCRIPTION`, gets the OpenAPI document of it all, under `title`.
    """

    def __init__(self, title: str, routes: Mapping[str, Route], longest_body: int) -> None:
        self._title = title
        self._routes = routes
        self._longest_body = longest_body
        self._description = b""

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one exchange."""
        if scope["type"] != "http":
            raise ValueError(f"this application serves no '{scope['type']}'")
        if (scope["method"], scope["path"]) == ("GET", ASGI_DESCRIPTION):
            await send_json(send, await self._described())
            return
        try:
            handler = self._handler(scope)
            known = scope.get("extensions", {}).get(ASGI_EXTENSION, {})
            exchange = Exchange(await self._body(receive), _headers(scope), known)
            _check_adapter(exchange.parameters)
        except ApiError as error:
            await _send_error(send, error)
            return
        except _GoneError:
            return
        await _until_gone(receive, _respond(handler, exchange, send))

    async def _described(self) -> bytes:
        """Its OpenAPI document, made once, off the event loop."""
        if not self._description:
            readers = {path: route.readers for path, route in self._routes.items()}
            document = await asyncio.to_thread(description, self._title, readers)
            self._description = json.dumps(document).encode()
        return self._description

    def _handler(self, scope: Mapping[str, Any]) -> Handler:
        route = self._routes.get(scope["path"])
        if route is None:
            raise ApiError(
                f"this model does not serve {scope['path'][:200]}",
                status=404,
                kind="not_found_error",
            )
        if scope["method"] != "POST":
            raise ApiError("use POST", status=405, headers={"allow": "POST"})
        return route.handler

    async def _body(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _GoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > self._longest_body:
                raise ApiError(
                    f"the body has more than the {self._longest_body} bytes that this model reads",
                    status=413,
                    code="content_too_large",
                )
        return b"".join(parts)


def _check_adapter(parameters: Mapping[str, Any]) -> None:
    """Refuse a request for an adapter: no engine that is served here has any."""
    if "adapter" in parameters:
        raise ApiError(
            f"Unknown model: {parameters.get('model', '')}; this model has no adapters",
            status=404,
            kind="not_found_error",
            param="model",
            code="model_not_found",
        )


class _GoneError(Exception):
    """The client left before its request was complete."""


def _headers(scope: Mapping[str, Any]) -> Mapping[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def _until_gone(receive: Receive, work: Awaitable[None]) -> None:
    """Do `work` in this task, and cancel it if the client disconnects before its end."""
    working = asyncio.current_task()
    assert working is not None
    ended = left = False

    def on_left(_: asyncio.Task[None]) -> None:
        nonlocal left
        if not ended:
            left = True
            working.cancel()

    watching = asyncio.ensure_future(_disconnected(receive))
    watching.add_done_callback(on_left)
    try:
        await work
    except asyncio.CancelledError:
        if not left or working.uncancel() > 0:  # the server stops it
            raise
    finally:
        ended = True
        watching.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _respond(handler: Handler, exchange: Exchange, send: Send) -> None:
    try:
        answer = await handler(exchange)
    except Exception as error:  # all that is wrong becomes an answer
        await _send_error(send, _as_api_error(error))
        return
    if isinstance(answer, bytes):
        await send_json(send, answer)
    else:
        try:
            async with aclosing(answer.events) as events:
                await _send_events(send, events)
        finally:
            await answer.close()


async def _send_events(send: Send, events: AsyncGenerator[bytes, None]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [*_EVENTS]})
    try:
        async for chunk in events:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        last = b""
    except (InferenceError, ApiError) as error:
        last = b"data: " + _as_api_error(error).body() + b"\n\n"
    await send({"type": "http.response.body", "body": last})


async def _send_error(send: Send, error: ApiError) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in error.headers.items()]
    await send_json(send, error.body(), error.status, headers)


def _as_api_error(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, InferenceError):
        return api_error(error)
    logger.error("a request failed", exc_info=error)
    return ApiError(f"{type(error).__name__}: {error}", status=500, kind="server_error")
