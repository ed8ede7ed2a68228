"""The gRPC endpoint: its services, on the transport that the settings select."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from penstock.core.access import AccessSink, AuditSink
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.log.verbosity import VERBOSITY
from penstock.header_forward import header_forward
from penstock.protocol.credentials import CREDENTIAL_HEADERS
from penstock.rpc.audit import audited
from penstock.rpc.call_log import LoggedCalls, VerboseCalls, VerboseServices, observed
from penstock.rpc.channelz.servicer import ChannelzServicer
from penstock.rpc.channelz.source import ChannelzRegistry
from penstock.rpc.context import Service
from penstock.rpc.health import HealthServicer
from penstock.rpc.orca import OrcaServicer
from penstock.rpc.reflection import reflection_services
from penstock.rpc.releases import ReleasesServicer
from penstock.rpc.restrictions import asking, restricted, secret_header
from penstock.rpc.servicer import InferenceServicer
from penstock.server.server import InferenceServer
from penstock.settings import GrpcSettings
from penstock.system.body_room import BodyRoom
from penstock.system.certificates import ServerCertificates
from penstock.system.fd_reserve import DescriptorReserve

logger = logging.getLogger(__name__)


class OpenTransport(Protocol):
    """Opens a transport: a context manager that serves, and yields its port."""

    def __call__(
        self,
        services: Iterable[Service],
        settings: GrpcSettings,
        grace: ExitDeadline,
        *,
        registry: ChannelzRegistry | None = None,
        descriptors: DescriptorReserve | None = None,
        bodies: BodyRoom | None = None,
        certificates: ServerCertificates | None = None,
    ) -> AbstractAsyncContextManager[int]: ...


@asynccontextmanager
async def open_grpc(
    server: InferenceServer,
    settings: GrpcSettings,
    grace: ExitDeadline,
    descriptors: DescriptorReserve | None = None,
    access: AccessSink | None = None,
    bodies: BodyRoom | None = None,
    certificates: ServerCertificates | None = None,
    audit: AuditSink | None = None,
) -> AsyncIterator[int]:
    """Serve gRPC; yields the port. Raises `OSError` if the address is in use.

    `descriptors` and `bodies` are shared with other ports; our own transport heeds them. `access`
    gets a line for each call, `audit` for those that change the server or are refused.
    `certificates` are those of the settings, followed.
    """
    inference = InferenceServicer(
        server,
        header_forward(settings.header_forward_pattern, _secret_headers(server, settings)),
        server.control_policy.behind(settings.restrictions),
        None if bodies is None else bodies.quota,
    )
    services = [
        inference.service(),
        HealthServicer(server).service(),
        OrcaServicer(server).service(),
        ReleasesServicer(server).service(),
    ]
    if settings.engine_rpc:
        # Here, since few servers have it, and each would import it at its start.
        from penstock.rpc.engine.servicer import VllmEngineServicer

        services.append(VllmEngineServicer(server, settings.engine_rpc.partition(":")[2]).service())
    registry = ChannelzRegistry() if settings.channelz else None
    if registry is not None:
        services.append(ChannelzServicer(registry).service())
    if settings.reflection:
        services += reflection_services(services)
    services = [restricted(service, settings.restrictions) for service in services]
    if (gate := server.access) is not None:
        services = [asking(service, gate) for service in services]
    if audit is not None:
        services = audited(services, audit, gate)
    verbose = VerboseServices(services, VerboseCalls())
    services = verbose.services
    if access is not None:
        services = observed(services, LoggedCalls(access), sizes=True)
    if settings.tls.mutual and not settings.tls.root_certificate:
        logger.warning(
            "mutual TLS refuses every client without a root certificate; set --grpc-root-cert"
        )
    opened = transport(settings.transport)
    listening = opened(
        services,
        settings,
        grace,
        registry=registry,
        descriptors=descriptors,
        bodies=bodies,
        certificates=certificates,
    )
    with VERBOSITY.followed_by(verbose.follow):
        async with listening as port:
            yield port


def _secret_headers(server: InferenceServer, settings: GrpcSettings) -> Iterator[str]:
    """Metadata that no model sees."""
    yield from map(secret_header, settings.restrictions)
    if server.access is not None:
        yield from CREDENTIAL_HEADERS


def transport(name: str) -> OpenTransport:
    """The transport `name`: `native` or `grpcio`. Each is imported only if it is used."""
    if name == "grpcio":
        from penstock.rpc.grpcio.transport import open_grpcio

        return open_grpcio
    from penstock.rpc.native.transport import open_native

    return open_native
