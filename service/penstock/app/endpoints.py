"""Opens the frontends: the gRPC, HTTP and metrics endpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from penstock.app.preflight import StartError
from penstock.caching import ResponseCache
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.gateway.metrics import open_metrics
from penstock.metrics.custom import CustomMetrics
from penstock.metrics.exposition import render
from penstock.rpc.server import open_grpc
from penstock.server.server import InferenceServer
from penstock.settings import Settings
from penstock.telemetry.machine import MachineUsage
from penstock.telemetry.metrics import MetricsPage


@asynccontextmanager
async def open_frontends(
    server: InferenceServer,
    settings: Settings,
    custom: CustomMetrics,
    deadline: ExitDeadline,
    cache: ResponseCache | None = None,
) -> AsyncIterator[dict[str, int]]:
    """Open every enabled endpoint; yields the ports by name: `grpc`, `http`, `metrics`."""
    ports: dict[str, int] = {}
    async with AsyncExitStack() as stack:
        try:
            if settings.grpc.enabled:
                grpc = open_grpc(server, settings.grpc, deadline)
                ports["grpc"] = await stack.enter_async_context(grpc)
            if settings.http.enabled:
                http = open_gateway(server, settings.http, deadline)
                ports["http"] = await stack.enter_async_context(http)
            if settings.metrics.enabled:
                page = _metrics_page(server, settings, custom, cache)
                metrics = open_metrics(page, settings.metrics)
                ports["metrics"] = await stack.enter_async_context(metrics)
        except OSError as error:
            raise StartError(str(error)) from error
        yield ports


def _metrics_page(
    server: InferenceServer, settings: Settings, custom: CustomMetrics, cache: ResponseCache | None
) -> Callable[[], str]:
    """A callback that renders the metrics page: the server's metrics, then the models' own."""
    machine = MachineUsage() if settings.metrics.cpu else None
    latencies = settings.metrics.latencies
    page = MetricsPage(server.snapshot, server.gauges, machine, cache, latencies)
    return lambda: page.text() + render(custom.snapshot())
