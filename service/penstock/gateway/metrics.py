"""The metrics endpoint: one page; other paths are empty (contract H-23)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.connection import ConnectionRules
from penstock.gateway.listener import listening
from penstock.gateway.replies import PLAIN, error_reply, reply
from penstock.settings import MetricsSettings

_CONTENT_TYPE = "text/plain; charset=utf-8"


_SCRAPE_SECONDS = 1.0
"""Seconds that a request for metrics may take once the server stops."""


@asynccontextmanager
async def open_metrics(
    page: Callable[[], str], settings: MetricsSettings, rules: ConnectionRules | None = None
) -> AsyncIterator[int]:
    """Serve `page` at /metrics; yields the port. Raises `OSError` if it is not available."""
    app = metrics_app(page)
    address, port = settings.address, settings.port
    grace = ExitDeadline(_SCRAPE_SECONDS)
    async with listening(app, "Metrics", address, port, grace, rules) as port:
        yield port


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
