"""The scope of an HTTP request: deadline, forwarded headers, cancellation on disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from starlette.requests import Request
from starlette.types import Receive

from penstock.core.errors import InvalidRequestError
from penstock.core.request import InferenceRequest, sent_by
from penstock.core.stream import ResponseStream
from penstock.header_forward import header_forward
from penstock.scheduling.tokens.tenants import Tenants

HEADER = "request-timeout"
"""Header with a deadline in seconds, fractions allowed; then the request is cancelled with 504."""


def with_deadline(inference: InferenceRequest, request: Request) -> InferenceRequest:
    """`inference` with the deadline in the header of `request`; unchanged without one."""
    text = request.headers.get(HEADER)
    if text is None:
        return inference
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise InvalidRequestError(
            f"header '{HEADER}' must be a number of seconds above 0, got '{text}'"
        )
    return replace(inference, deadline=asyncio.get_running_loop().time() + seconds)


def with_sender(
    inference: InferenceRequest, request: Request, tenants: Tenants | None
) -> InferenceRequest:
    """`inference` with its sender by the headers of `request`, where the server has tenants."""
    return inference if tenants is None else sent_by(inference, tenants.sender(request.headers))


REQUEST = "penstock.request"
"""Key of the scope for the inference request that was read, which log lines name."""

HEADER_NAMES = "penstock.header_names"
"""Key of the scope for header names as sent; in its `headers` they are in lower case."""


class ForwardedHeaders:
    """Forwards headers whose names match a pattern; none if it is empty."""

    def __init__(self, pattern: str) -> None:
        self._forward = header_forward(pattern)

    def added_to(self, inference: InferenceRequest, request: Request) -> InferenceRequest:
        """`inference` with headers of `request` among its parameters; refuses reserved ones."""
        if self._forward is None:
            return inference
        headers = request.scope["headers"]
        names = request.scope.get(HEADER_NAMES) or [name for name, _ in headers]
        pairs = zip(names, (value for _, value in headers), strict=True)
        chosen = self._forward.select((n.decode("latin-1"), v.decode("latin-1")) for n, v in pairs)
        return replace(inference, parameters={**inference.parameters, **chosen})


@asynccontextmanager
async def closed_on_disconnect(
    stream: ResponseStream, receive: Receive
) -> AsyncIterator[ResponseStream]:
    """Cancellation on disconnect: closes `stream` when the client leaves, and on exit."""
    watcher = None
    if not stream.ended:
        watcher = asyncio.create_task(_close_when_gone(stream, receive))
    try:
        yield stream
    finally:
        stream.close()
        if watcher is not None:
            watcher.cancel()
            await asyncio.wait([watcher])


async def _close_when_gone(stream: ResponseStream, receive: Receive) -> None:
    message = await receive()
    while message["type"] != "http.disconnect":
        message = await receive()
    stream.close()
