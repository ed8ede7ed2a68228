"""The metrics endpoint: one page; other paths are empty (contract H-23)."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.gateway.replies import PLAIN, error_reply, reply

_CONTENT_TYPE = "text/plain; charset=utf-8"


def metrics_app(page: Callable[[], str]) -> ASGIApp:
    """The ASGI application that serves `page` at /metrics."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await _answer(scope, page)(scope, receive, send)

    return app


def _answer(scope: Scope, page: Callable[[], str]) -> Response:
    if scope["method"] != "GET":
        return error_reply("Method Not Allowed", 405, PLAIN)
    asked = scope["path"] in ("/metrics", "/metrics/")
    return reply(page().encode() if asked else b"", content_type=_CONTENT_TYPE)
