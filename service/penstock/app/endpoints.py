"""Opens the frontends: the gRPC, HTTP and metrics endpoints."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import NamedTuple

from penstock.app.preflight import StartError
from penstock.caching import ResponseCache
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.gateway.connection import ConnectionRules
from penstock.gateway.connection_limits import HttpLimits
from penstock.gateway.metrics import open_metrics
from penstock.metrics.custom import CustomMetrics
from penstock.metrics.exposition import Family
from penstock.rpc.server import open_grpc
from penstock.server.server import InferenceServer
from penstock.settings import Settings
from penstock.system.fd_reserve import DescriptorReserve
from penstock.telemetry.access_log import AccessLog
from penstock.telemetry.gpus import GpuUsage
from penstock.telemetry.machine import MachineUsage
from penstock.telemetry.metrics import MetricsPage, OwnNames
from penstock.telemetry.process_metrics import process_families
from penstock.telemetry.scrape import Scraper
from penstock.telemetry.trace_metrics import trace_families
from penstock.telemetry.user_metrics import UserMetrics
from penstock.tracing.export import ExportCounts

logger = logging.getLogger(__name__)


class _Endpoint(NamedTuple):
    """`service` names it in errors, `title` where the log says that it has started."""

    service: str
    title: str
    address: str
    shared: bool
    listening: AbstractAsyncContextManager[int]


class Frontends:
    """The endpoints that the settings enable.

    They listen before the models are loaded, so that health checks are answered meanwhile. A port
    that is shared with other servers (`--reuse-grpc-port`, `--reuse-http-port`) is opened after
    that: clients of those others would reach a server that is not ready.
    """

    def __init__(
        self,
        server: InferenceServer,
        settings: Settings,
        custom: CustomMetrics,
        deadline: ExitDeadline,
        cache: ResponseCache | None = None,
        gpus: GpuUsage | None = None,
        access: AccessLog | None = None,
        export: ExportCounts | None = None,
    ) -> None:
        self._endpoints: list[_Endpoint] = []
        self._ports: dict[str, int] = {}
        grpc, http, metrics = settings.grpc, settings.http, settings.metrics
        descriptors = DescriptorReserve()
        rules = ConnectionRules(HttpLimits(idle=http.idle_timeout_secs), descriptors, access)
        if grpc.enabled:
            listening = open_grpc(server, grpc, deadline, descriptors, access)
            self._endpoints.append(
                _Endpoint("GRPC", "GRPCInferenceService", grpc.address, grpc.reuse_port, listening)
            )
        if http.enabled:
            listening = open_gateway(server, http, deadline, rules)
            self._endpoints.append(
                _Endpoint("HTTP", "HTTPService", http.address, http.reuse_port, listening)
            )
        if metrics.enabled:
            scraper = _scraper(server, settings, custom, cache, gpus, export)
            listening = open_metrics(scraper.scrape, metrics, rules)
            self._endpoints.append(
                _Endpoint("Metrics", "Metrics Service", metrics.address, False, listening)
            )

    async def open(self, stack: AsyncExitStack) -> None:
        """Listen, except on ports that are shared; raises `StartError`."""
        for one in self._endpoints:
            if not one.shared:
                await self._open(one, stack)
                port = self._ports[one.title]
                logger.info("%s listens at %s:%s for health checks", one.title, one.address, port)

    async def open_shared(self, stack: AsyncExitStack) -> None:
        """Listen on shared ports too, and log that all have started; raises `StartError`."""
        for one in self._endpoints:
            if one.shared:
                await self._open(one, stack)
        for one in self._endpoints:
            logger.info("Started %s at %s:%s", one.title, one.address, self._ports[one.title])

    async def _open(self, one: _Endpoint, stack: AsyncExitStack) -> None:
        try:
            self._ports[one.title] = await stack.enter_async_context(one.listening)
        except OSError as error:
            raise StartError(_named(one.service, str(error))) from error


def _named(service: str, problem: str) -> str:
    """The problem behind the name of the service that has it, as Triton writes it."""
    start = f"failed to start {service} service: "
    return problem if problem.startswith(start) else f"{start}Unavailable - {problem}"


def _scraper(
    server: InferenceServer,
    settings: Settings,
    custom: CustomMetrics,
    cache: ResponseCache | None,
    gpus: GpuUsage | None,
    export: ExportCounts | None,
) -> Scraper:
    """The metrics page: the server's metrics, the models' own, and those of users' collectors."""
    metrics = settings.metrics
    machine = MachineUsage(metrics.interval_ms / 1000) if metrics.cpu else None
    page = MetricsPage(
        server.snapshot,
        server.gauges,
        machine,
        cache,
        metrics.latencies,
        gpus,
        server.histograms,
    )

    def families() -> Iterator[Family]:
        yield from page.families()
        yield from process_families(server.processes())
        if export is not None:
            yield from trace_families(export)
        yield from custom.snapshot()

    return Scraper(families, UserMetrics(OwnNames().__contains__))
