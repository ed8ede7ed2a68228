"""The metrics endpoint: one page; other paths are empty (contract H-23)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from penstock.access.gate import AccessGate
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.call_guard import CallGuard, call_guard
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.connections.listener import listening
from penstock.gateway.connections.open_connections import ConnectionRules
from penstock.gateway.replies import PLAIN, Refusal, method_not_allowed, reply
from penstock.gateway.router import Route, Target
from penstock.settings import Feature, MetricsSettings

Scrape = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Takes the `Accept` header of a scrape; returns the page and its content type."""

_CONTENT_TYPE = "text/plain; charset=utf-8"

_SCRAPE_SECONDS = 1.0
"""Seconds that a request for metrics may take once the server stops."""


@asynccontextmanager
async def open_metrics(
    scrape: Scrape,
    settings: MetricsSettings,
    rules: ConnectionRules | None = None,
    gate: AccessGate | None = None,
) -> AsyncIterator[int]:
    """Serve the page at /metrics; yields the port. Raises `OSError` if it is not available.

    With a `gate`, nothing is answered without its permit.
    """
    address, port = settings.address, settings.port
    grace = ExitDeadline(_SCRAPE_SECONDS)

    def start(call: HttpCall) -> None:
        call.run(send_metrics(call, scrape))

    begin: Callable[[HttpCall], None] = start
    if gate is not None:
        begin = _guarded(start, call_guard(Feature.METRICS, (), None, gate))
    async with listening(begin, "Metrics", address, port, grace, rules) as port:
        yield port


def _guarded(start: Callable[[HttpCall], None], guard: CallGuard) -> Callable[[HttpCall], None]:
    def guarded(call: HttpCall) -> None:
        if (refusal := guard.refusal(call)) is not None:
            call.send(Refusal(refusal, PLAIN))
        else:
            start(call)

    return guarded


def metrics_route(scrape: Scrape) -> Route:
    """The page as one route among others."""

    async def answer(call: HttpCall, _: Target) -> None:
        await send_metrics(call, scrape)

    return Route("/metrics/?", ("GET",), answer, Feature.STATISTICS)


async def send_metrics(call: HttpCall, scrape: Scrape) -> None:
    """Answer a call of the metrics port."""
    if call.method != "GET":
        call.send(method_not_allowed(("GET",), PLAIN))
    elif call.path not in ("/metrics", "/metrics/"):
        call.send(reply(content_type=_CONTENT_TYPE))
    else:
        accepted = (value for name, value in call.fields if name.lower() == b"accept")
        body, content_type = await scrape(b",".join(accepted).decode("latin-1"))
        call.send(reply(body, content_type=content_type))
