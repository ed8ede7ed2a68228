"""Opens the frontends: the gRPC, HTTP and metrics endpoints."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import cache as once
from functools import partial
from pathlib import Path
from typing import NamedTuple

from penstock.app.preflight import StartError
from penstock.caching import ResponseCache
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway, open_openai
from penstock.gateway.clouds.errors import EndpointStartError
from penstock.gateway.clouds.sagemaker import open_sagemaker
from penstock.gateway.clouds.vertex import open_vertex
from penstock.gateway.connections.open_connections import ConnectionRules, limits_of
from penstock.gateway.metrics import open_metrics
from penstock.metrics.custom import CustomMetrics
from penstock.metrics.exposition import Family
from penstock.rpc.server import open_grpc
from penstock.server.seen_models import seen
from penstock.server.server import InferenceServer
from penstock.settings import Settings
from penstock.system.body_room import BodyRoom
from penstock.system.certificates import ServerCertificates
from penstock.system.fd_reserve import DescriptorReserve
from penstock.system.machine import MachineUsage
from penstock.telemetry.access_log import AccessLog
from penstock.telemetry.audit_log import AuditLog
from penstock.telemetry.gpus import GpuUsage
from penstock.telemetry.metrics import MetricsPage, OwnNames
from penstock.telemetry.scrape import Scraper
from penstock.telemetry.server_families import (
    access_families,
    alias_families,
    audit_families,
    certificate_families,
    process_families,
    repository_families,
    residency_families,
    trace_families,
)
from penstock.telemetry.user_metrics import UserMetrics
from penstock.tracing.export import ExportCounts

logger = logging.getLogger(__name__)


class _Endpoint(NamedTuple):
    """`service` names it in errors, `title` where the log says that it has started.

    One that is `late` listens once the models are loaded.
    """

    service: str
    title: str
    address: str
    late: bool
    listening: AbstractAsyncContextManager[int]


class Frontends:
    """The endpoints that the settings enable.

    They listen before the models are loaded, so that health checks are answered meanwhile. A port
    that is shared with other servers (`--reuse-grpc-port`, `--reuse-http-port`) is opened after
    that: clients of those others would reach a server that is not ready. So is that of Vertex AI,
    which looks for its default model.
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
        audit: AuditLog | None = None,
    ) -> None:
        grpc, http, metrics = settings.grpc, settings.http, settings.metrics
        certificates = _certificates(settings, audit)
        self._certificates = certificates.values()
        scraper = once(
            partial(
                metrics_scraper,
                server,
                settings,
                custom,
                cache,
                gpus,
                export,
                self._certificates,
                audit,
            )
        )
        server = seen(server)
        self._endpoints: list[_Endpoint] = []
        self._ports: dict[str, int] = {}
        descriptors = DescriptorReserve()
        bodies = BodyRoom(settings.request_memory_pool_byte_size)
        rules = ConnectionRules(
            limits_of(http), descriptors, access, bodies, certificates.get("HTTP"), audit
        )
        if grpc.enabled:
            listening = open_grpc(
                server,
                grpc,
                deadline,
                descriptors,
                access,
                bodies,
                certificates.get("gRPC"),
                audit,
            )
            self._endpoints.append(
                _Endpoint("GRPC", "GRPCInferenceService", grpc.address, grpc.reuse_port, listening)
            )
        openai = settings.openai
        if http.enabled:
            listening = open_gateway(server, http, deadline, rules, openai)
            self._endpoints.append(
                _Endpoint("HTTP", "HTTPService", http.address, http.reuse_port, listening)
            )
        if openai.enabled and openai.port is not None:
            listening = open_openai(server, http, openai, scraper().scrape, deadline, rules)
            self._endpoints.append(
                _Endpoint("OpenAI", "OpenAIService", http.host, False, listening)
            )
        if metrics.enabled:
            listening = open_metrics(scraper().scrape, metrics, rules, server.access)
            self._endpoints.append(
                _Endpoint("Metrics", "Metrics Service", metrics.address, False, listening)
            )
        self._endpoints += _cloud_endpoints(server, settings, deadline, rules, scraper)

    @property
    def ports(self) -> Mapping[str, int]:
        """Where those that are open listen, by their titles in the log."""
        return self._ports

    async def open(self, stack: AsyncExitStack) -> None:
        """Listen, except on ports that are late; raises `StartError`."""
        for one in self._endpoints:
            if not one.late:
                await self._open(one, stack)
                port = self._ports[one.title]
                logger.info("%s listens at %s:%s for health checks", one.title, one.address, port)
        for each in self._certificates:
            await stack.enter_async_context(each.running())

    async def open_late(self, stack: AsyncExitStack) -> None:
        """Listen on late ports too, and log that all have started; raises `StartError`."""
        for one in self._endpoints:
            if one.late:
                await self._open(one, stack)
        for one in self._endpoints:
            logger.info("Started %s at %s:%s", one.title, one.address, self._ports[one.title])

    async def _open(self, one: _Endpoint, stack: AsyncExitStack) -> None:
        try:
            self._ports[one.title] = await stack.enter_async_context(one.listening)
        except EndpointStartError as error:
            raise StartError(str(error)) from error
        except OSError as error:
            raise StartError(_named(one.service, str(error))) from error


def _certificates(settings: Settings, audit: AuditLog | None) -> dict[str, ServerCertificates]:
    """The certificates of the endpoints that encrypt, by their names."""
    grpc, http = settings.grpc, settings.http
    found = {}
    if grpc.enabled and grpc.tls.enabled:
        found["gRPC"] = ServerCertificates("gRPC", grpc.tls, audit)
    if http.tls.enabled:  # of SageMaker and Vertex AI, too
        found["HTTP"] = ServerCertificates("HTTP", http.tls, audit)
    return found


def _cloud_endpoints(
    server: InferenceServer,
    settings: Settings,
    deadline: ExitDeadline,
    rules: ConnectionRules,
    scraper: Callable[[], Scraper],
) -> Iterator[_Endpoint]:
    """SageMaker and Vertex AI, each on its own port, as the environment describes them."""
    http, sagemaker, vertex, known = settings.http, settings.sagemaker, settings.vertex, os.environ
    if sagemaker.enabled:
        port, root = sagemaker.port, Path(sagemaker.model_root)
        listening = open_sagemaker(server, http, port, root, known, deadline, rules)
        yield _Endpoint("Sagemaker", "Sagemaker HTTPService", http.host, False, listening)
    if vertex.enabled:
        model, scrape = vertex.default_model, scraper().scrape
        listening = open_vertex(server, http, vertex.port, model, known, deadline, scrape, rules)
        yield _Endpoint("Vertex AI", "Vertex AI HTTPService", http.host, True, listening)


def _named(service: str, problem: str) -> str:
    """The problem behind the name of the service that has it, as Triton writes it."""
    start = f"failed to start {service} service: "
    return problem if problem.startswith(start) else f"{start}Unavailable - {problem}"


def metrics_scraper(
    server: InferenceServer,
    settings: Settings,
    custom: CustomMetrics,
    cache: ResponseCache | None,
    gpus: GpuUsage | None,
    export: ExportCounts | None,
    certificates: Collection[ServerCertificates] = (),
    audit: AuditLog | None = None,
) -> Scraper:
    """The metrics page: the server's metrics, the models' own, and those of users' collectors."""
    metrics, ends_without_one = settings.metrics, settings.repository.exit_on_error
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
        if server.access is not None:
            yield from access_families(server.access.reload_failures)
        if audit is not None:
            yield from audit_families(audit.lost)
        if certificates:
            yield from certificate_families(certificates)
        missing = None if ends_without_one else len(server.repository.missing)
        yield from repository_families(server.remote, missing)
        if server.residency is not None:
            yield from residency_families(server.residency)
        yield from alias_families(server.releases)
        yield from custom.snapshot()

    return Scraper(families, UserMetrics(OwnNames().__contains__))
