"""Opens the HTTP endpoints: inference, and metrics for Prometheus."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import gateway_app
from penstock.gateway.listener import listening
from penstock.gateway.metrics import metrics_app
from penstock.server.server import InferenceServer
from penstock.settings import HttpSettings, MetricsSettings

logger = logging.getLogger(__name__)

_SCRAPE_SECONDS = 1.0
"""Seconds that a request for metrics may take once the server stops."""


@asynccontextmanager
async def open_gateway(
    server: InferenceServer, settings: HttpSettings, grace: ExitDeadline
) -> AsyncIterator[int]:
    """Serve HTTP; yields the port. Raises `OSError` if the address is not available.

    On exit, requests and streams in flight get the rest of `grace` to finish.
    """
    app = gateway_app(server, settings)
    address, port = settings.address, settings.port
    async with listening(app, "HTTP", address, port, grace, settings.reuse_port) as port:
        logger.info("Started HTTPService at %s:%s", address, port)
        yield port


@asynccontextmanager
async def open_metrics(page: Callable[[], str], settings: MetricsSettings) -> AsyncIterator[int]:
    """Serve `page` at /metrics; yields the port. Raises `OSError` as `open_gateway` does."""
    app = metrics_app(page)
    address, port = settings.address, settings.port
    grace = ExitDeadline(_SCRAPE_SECONDS)
    async with listening(app, "metrics", address, port, grace) as port:
        logger.info("Started Metrics Service at %s:%s", address, port)
        yield port
