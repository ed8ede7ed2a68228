"""Listening port, TLS credentials and channel arguments of a `grpc.aio` server."""

from __future__ import annotations

from collections.abc import Iterable

import grpc
import grpc.aio

from penstock.settings import GrpcSettings, KeepaliveSettings, TlsSettings
from penstock.system.certificates import Pem, ServerCertificates

_LARGEST_MESSAGE = 2**31 - 1


def listen(
    server: grpc.aio.Server, settings: GrpcSettings, certificates: ServerCertificates
) -> int:
    """Add the listening port to `server`; returns it. Raises `OSError` if it is in use."""
    address = f"{_host(settings.address)}:{settings.port}"
    try:
        if settings.tls.enabled:
            port = server.add_secure_port(address, _credentials(settings.tls, certificates))
        else:
            port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if not port:
        raise OSError(f"Socket '{settings.address}:{settings.port}' already in use ")
    return port


def _host(address: str) -> str:
    """The host of an address; the command line writes `ipv6:[::1]`, grpc expects `[::1]`."""
    return address.removeprefix("ipv6:")


def _credentials(tls: TlsSettings, certificates: ServerCertificates) -> grpc.ServerCredentials:
    """Credentials that ask before each handshake, on a thread of grpc's, whether they are old."""
    certificates.context("h2")  # which checks the files, and says what is wrong with them
    used = certificates.pem
    first = _configuration(used)

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal used
        now = certificates.pem
        if now is used:
            return None
        used = now
        return _configuration(now)

    # The stubs do not know that nothing changed is None.
    return grpc.dynamic_ssl_server_credentials(first, changed, tls.mutual)  # type: ignore[arg-type]


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(pem.private_key, pem.certificate)], pem.root_certificate or None
    )


def options(settings: GrpcSettings) -> list[tuple[str, int]]:
    """The channel arguments for the settings."""
    return [
        ("grpc.max_send_message_length", _LARGEST_MESSAGE),
        ("grpc.max_receive_message_length", settings.max_message_size),
        ("grpc.so_reuseport", int(settings.reuse_port)),
        *_keepalive(settings.keepalive),
    ]


def _keepalive(keepalive: KeepaliveSettings) -> Iterable[tuple[str, int]]:
    yield "grpc.keepalive_time_ms", keepalive.time_ms
    yield "grpc.keepalive_timeout_ms", keepalive.timeout_ms
    yield "grpc.keepalive_permit_without_calls", int(keepalive.permit_without_calls)
    yield "grpc.http2.max_pings_without_data", keepalive.max_pings_without_data
    yield (
        "grpc.http2.min_ping_interval_without_data_ms",
        keepalive.min_recv_ping_interval_without_data_ms,
    )
    yield "grpc.http2.max_ping_strikes", keepalive.max_ping_strikes
    if keepalive.max_connection_age_ms is not None:
        yield "grpc.max_connection_age_ms", keepalive.max_connection_age_ms
    if keepalive.max_connection_age_grace_ms is not None:
        yield "grpc.max_connection_age_grace_ms", keepalive.max_connection_age_grace_ms
