"""Certificates and authorities that change under listeners, by new and by resumed connections."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from loadtest.authority import Authority, client_context, write_pair, write_whole

from access.models import guarded
from gateway.serving import LOCAL, FakeServer
from harness.tls_client import shake
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.gateway.connections.open_connections import ConnectionRules
from penstock.rpc.server import open_grpc
from penstock.settings import GrpcSettings, TlsSettings
from penstock.system.certificates import ServerCertificates
from rpc.serving import Client
from system.test_certificates import settings

OLD, NEW = Authority("old"), Authority("new")
HTTP = b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")


@pytest.fixture
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsSettings:
    """Of a server that the old authority has signed, and whose clients it has to sign."""
    folder = tmp_path_factory.mktemp("tls")
    write_pair(folder, "server", OLD.signed(dns=["localhost"]))
    write_whole(folder / "root.pem", OLD.pem)
    return settings(folder)


def renew(files: TlsSettings, authority: Authority) -> None:
    """A new certificate of the server."""
    write_pair(Path(files.certificate).parent, "server", authority.signed(dns=["localhost"]))


class Listener:
    """A port, what a client sends to it first, and its certificates."""

    def __init__(self, port: int, protocol: str, certificates: ServerCertificates) -> None:
        self.port = port
        self.protocol = protocol
        self.sent = HTTP2 if protocol == "h2" else HTTP
        self.certificates = certificates

    def client(self, authority: Authority, root: Authority = OLD) -> ssl.SSLContext:
        """A client whose certificate one authority has signed, and which trusts another."""
        return client_context(root.pem, authority.signed(dns=["client"]), self.protocol)


@asynccontextmanager
async def open_http(files: TlsSettings) -> AsyncIterator[Listener]:
    certificates = ServerCertificates("HTTP", files)
    rules = ConnectionRules(certificates=certificates)
    http = replace(LOCAL, tls=files)
    async with open_gateway(FakeServer(), http, ExitDeadline(2), rules) as port:
        yield Listener(port, "http/1.1", certificates)


@asynccontextmanager
async def open_rpc(
    files: TlsSettings, repository: Path, transport: Any = "native"
) -> AsyncIterator[Listener]:
    certificates = ServerCertificates("gRPC", files)
    grpc = GrpcSettings(address="127.0.0.1", port=0, transport=transport, tls=files)
    async with (
        guarded(repository) as server,
        open_grpc(server, grpc, ExitDeadline(2), certificates=certificates) as port,
    ):
        yield Listener(port, "h2", certificates)


def listening(
    kind: str, files: TlsSettings, repository: Path
) -> AbstractAsyncContextManager[Listener]:
    return open_http(files) if kind == "http" else open_rpc(files, repository, kind)


KINDS = pytest.mark.parametrize("kind", ["http", "native", "grpcio"])


@KINDS
async def test_new_connections_get_the_new_certificate(
    kind: str, files: TlsSettings, repository: Path
) -> None:
    async with listening(kind, files, repository) as listener:
        client = listener.client(OLD)
        before = await shake(listener.port, client, listener.sent)
        renew(files, OLD)
        await listener.certificates.look()
        after = await shake(listener.port, client, listener.sent)
    assert before is not None
    assert after is not None
    assert before.certificate != after.certificate


@KINDS
async def test_an_authority_that_was_taken_away_lets_nobody_in(
    kind: str, files: TlsSettings, repository: Path
) -> None:
    async with listening(kind, files, repository) as listener:
        old, new = listener.client(OLD), listener.client(NEW)
        assert await shake(listener.port, old, listener.sent) is not None
        assert await shake(listener.port, new, listener.sent) is None
        write_whole(Path(files.root_certificate), NEW.pem)
        await listener.certificates.look()
        assert await shake(listener.port, old, listener.sent) is None
        assert await shake(listener.port, new, listener.sent) is not None


@pytest.mark.parametrize("kind", ["http", "native"])
async def test_a_resumed_connection_is_refused_when_its_authority_was_taken_away(
    kind: str, files: TlsSettings, repository: Path
) -> None:
    async with listening(kind, files, repository) as listener:
        client = listener.client(OLD)
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        first = await shake(listener.port, client, listener.sent)
        assert first is not None
        assert first.session is not None
        second = await shake(listener.port, client, listener.sent, first.session)
        assert second is not None
        assert second.resumed
        write_whole(Path(files.root_certificate), NEW.pem)
        await listener.certificates.look()
        assert await shake(listener.port, client, listener.sent, second.session) is None


@pytest.mark.parametrize("kind", ["http", "native"])
async def test_clients_of_mutual_tls_get_no_tickets(
    kind: str, files: TlsSettings, repository: Path
) -> None:
    """With TLS 1.3 their certificates are looked at each time, so that none outlives its dates."""
    async with listening(kind, files, repository) as listener:
        client = listener.client(OLD)
        client.minimum_version = ssl.TLSVersion.TLSv1_3
        first = await shake(listener.port, client, listener.sent)
        assert first is not None
        assert first.session is None or not first.session.has_ticket


@pytest.mark.parametrize("transport", ["native", "grpcio"])
async def test_connections_that_are_open_go_on(
    transport: str, files: TlsSettings, repository: Path
) -> None:
    pem, key = OLD.signed(dns=["client"])
    shown = grpc.ssl_channel_credentials(OLD.pem, key, pem)
    async with (
        open_rpc(files, repository, transport) as listener,
        grpc.aio.secure_channel(f"localhost:{listener.port}", shown) as channel,
    ):
        client = Client(channel)
        assert (await client.check()).status
        renew(files, NEW)
        write_whole(Path(files.root_certificate), NEW.pem)
        await listener.certificates.look()
        assert (await client.check()).status


@KINDS
async def test_a_wrong_pair_leaves_the_listener_as_it_is(
    kind: str, files: TlsSettings, repository: Path
) -> None:
    async with listening(kind, files, repository) as listener:
        client = listener.client(OLD)
        before = await shake(listener.port, client, listener.sent)
        write_whole(Path(files.key), NEW.signed()[1])
        for _ in range(2):
            await listener.certificates.look()
        after = await shake(listener.port, client, listener.sent)
    assert before is not None
    assert after is not None
    assert before.certificate == after.certificate
    assert listener.certificates.failures == 1


@KINDS
@pytest.mark.parametrize(
    "pair",
    [
        OLD.signed(dns=["client"], ends=timedelta(minutes=-10)),
        OLD.signed(dns=["client"], begins=timedelta(minutes=10)),
    ],
    ids=["expired", "early"],
)
async def test_clients_whose_certificates_are_not_valid_now_are_refused(
    kind: str, pair: tuple[bytes, bytes], files: TlsSettings, repository: Path
) -> None:
    async with listening(kind, files, repository) as listener:
        client = client_context(OLD.pem, pair, listener.protocol)
        assert await shake(listener.port, client, listener.sent) is None
