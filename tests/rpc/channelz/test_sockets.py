"""Channelz: connections and listening sockets."""

from __future__ import annotations

import ssl
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import grpc
import pytest

from penstock.core.exit_deadline import ExitDeadline
from penstock.rpc.server import open_grpc
from penstock.settings import GrpcSettings
from rpc.certificates import tls, write_certificates
from rpc.channelz.endpoint import Alive, Server, other_client, until

LOCALHOST = ip_address("127.0.0.1").packed


async def test_connections_are_listed_while_they_are_open(server: Server) -> None:
    (first,) = await server.sockets()
    async with other_client(server) as client:
        await client.call("ServerLive")
        one, other = await server.sockets()
        assert one.ref.socket_id == first.ref.socket_id < other.ref.socket_id
        assert one.remote.tcpip_address.port != other.remote.tcpip_address.port
    await until(server, lambda sockets: len(sockets) == 1)
    assert await server.status("GetSocket", socket_id=other.ref.socket_id) is (
        grpc.StatusCode.NOT_FOUND
    )


async def test_socket_has_its_addresses(server: Server) -> None:
    (socket,) = await server.sockets()
    assert socket.local.tcpip_address.ip_address == LOCALHOST
    assert socket.local.tcpip_address.port == server.port
    assert socket.remote.tcpip_address.ip_address == LOCALHOST
    assert f"127.0.0.1:{socket.remote.tcpip_address.port}" in socket.ref.name
    assert not socket.HasField("security")


async def test_server_lists_its_listening_socket(server: Server) -> None:
    itself = await server.itself()
    (ref,) = itself.listen_socket
    socket = (await server.ask("GetSocket", socket_id=ref.socket_id)).socket
    assert socket.local.tcpip_address.ip_address == LOCALHOST
    if server.native:  # grpcio lists the port that was requested
        assert ref.name == f"ipv4:127.0.0.1:{server.port}"
        assert socket.local.tcpip_address.port == server.port
    refs = (await server.ask("GetServerSockets", server_id=itself.ref.server_id)).socket_ref
    assert ref.socket_id not in {one.socket_id for one in refs}


@pytest.mark.slow
async def test_socket_has_its_tls_parameters(local: GrpcSettings, tmp_path: Path) -> None:
    certificates = write_certificates(tmp_path)
    settings = replace(local, channelz=True, tls=tls(certificates, mutual=True))
    root, key, certificate = (
        (certificates / name).read_bytes() for name in ("root.pem", "client.key", "client.pem")
    )
    credentials = grpc.ssl_channel_credentials(root, key, certificate)
    async with (
        open_grpc(Alive(), settings, ExitDeadline(0)) as port,
        grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel,
    ):
        (socket,) = await Server(port, channel, True).sockets()
    security = socket.security.tls
    if local.transport == "grpcio":  # it lists no more than this, and in this form
        assert security.remote_certificate == certificate
        return
    assert security.standard_name.startswith("TLS_")
    ours = (certificates / "server.pem").read_text()
    assert security.local_certificate == ssl.PEM_cert_to_DER_cert(ours)
    assert security.remote_certificate == ssl.PEM_cert_to_DER_cert(certificate.decode())


async def test_unix_socket_has_its_path(tmp_path: Path) -> None:
    path = f"{tmp_path}/grpc.sock"
    settings = GrpcSettings(channelz=True, address=f"unix:{path}", port=0)
    async with (
        open_grpc(Alive(), settings, ExitDeadline(0)),
        grpc.aio.insecure_channel(f"unix:{path}") as channel,
    ):
        server = Server(0, channel, True)
        (socket,) = await server.sockets()
        assert socket.local.uds_address.filename == path
        assert (await server.itself()).listen_socket[0].name == f"unix:{path}"
