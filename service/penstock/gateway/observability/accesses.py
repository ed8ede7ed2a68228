"""Lines of the access log about HTTP requests."""

from __future__ import annotations

import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.access import Access, AccessSink
from penstock.core.request import InferenceRequest
from penstock.gateway.request_scope import REQUEST

_MODEL = re.compile(r"/v2/(?:repository/)?models/([^/]+)")


class LoggedApp:
    """An ASGI application whose requests have a line each in the access log."""

    def __init__(self, app: ASGIApp, log: AccessSink) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = time.monotonic()
        received = sent = status = 0

        async def counted_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def counted_send(message: Message) -> None:
            nonlocal sent, status
            status = message.get("status", status)
            sent += memoryview(message.get("body", b"")).nbytes
            await send(message)

        try:
            await self._app(scope, counted_receive, counted_send)
        finally:
            seconds = time.monotonic() - begun
            self._log.add(_access(scope, status, received, sent, seconds))


def _access(scope: Scope, status: int, received: int, sent: int, seconds: float) -> Access:
    path = scope["raw_path"].decode("utf-8", "backslashreplace")
    request: InferenceRequest | None = scope.get(REQUEST)
    named = _MODEL.match(path)
    timeline = None if request is None else request.timeline
    return Access(
        at=time.time(),
        peer=address(scope.get("client")),
        protocol=f"HTTP/{scope.get('http_version', '1.1')}",
        method=scope["method"],
        path=path,
        status=str(status) if status else "CANCELLED",
        received=received,
        sent=sent,
        seconds=seconds,
        model=named[1] if named is not None else "",
        request_id="" if request is None else request.id,
        trace_id="" if timeline is None else timeline.trace.text_id,
    )


def address(client: tuple[str, int] | None) -> str:
    """The address of a client, as `HOST:PORT`."""
    if client is None:
        return ""
    host, port = client
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def refused(client: tuple[str, int] | None, status: int) -> Access:
    """The access of a request that was refused before it was read whole."""
    return Access(time.time(), address(client), "HTTP", "-", "", str(int(status)), 0, 0, 0.0)
