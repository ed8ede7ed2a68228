"""The metrics endpoint: one page; other paths are empty (contract H-23)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.connection import ConnectionRules
from penstock.gateway.listener import listening
from penstock.gateway.replies import PLAIN, error_reply, reply
from penstock.settings import MetricsSettings

Scrape = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Takes the `Accept` header of a scrape; returns the page and its content type."""

_CONTENT_TYPE = "text/plain; charset=utf-8"

_SCRAPE_SECONDS = 1.0
"""Seconds that a request for metrics may take once the server stops."""


@asynccontextmanager
async def open_metrics(
    scrape: Scrape, settings: MetricsSettings, rules: ConnectionRules | None = None
) -> AsyncIterator[int]:
    """Serve the page at /metrics; yields the port. Raises `OSError` if it is not available."""
    app = metrics_app(scrape)
    address, port = settings.address, settings.port
    grace = ExitDeadline(_SCRAPE_SECONDS)
    async with listening(app, "Metrics", address, port, grace, rules) as port:
        yield port


def metrics_app(scrape: Scrape) -> ASGIApp:
    """The ASGI application that serves the page at /metrics."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await _answer(scope, scrape)
        await response(scope, receive, send)

    return app


async def _answer(scope: Scope, scrape: Scrape) -> Response:
    if scope["method"] != "GET":
        return error_reply("Method Not Allowed", 405, PLAIN)
    if scope["path"] not in ("/metrics", "/metrics/"):
        return reply(content_type=_CONTENT_TYPE)
    accepted = (value for name, value in scope["headers"] if name == b"accept")
    body, content_type = await scrape(b",".join(accepted).decode("latin-1"))
    return reply(body, content_type=content_type)
