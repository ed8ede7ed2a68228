"""The gRPC endpoint as a whole: what it serves, what it says at the start, and TLS."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from penstock.core.exit_deadline import ExitDeadline
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.server import open_grpc
from penstock.settings import GrpcSettings
from rpc.certificates import needs_openssl, tls, write_certificates
from rpc.manual import ManualServer
from rpc.serving import SERVICE, Client, channel_to


class Alive(ManualServer):
    async def live(self) -> bool:
        return True

    async def ready(self) -> bool:
        return True


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.contract("G-22")
async def test_inference_and_health_share_the_port(local: GrpcSettings) -> None:
    async with open_grpc(Alive(), local, ExitDeadline(0)) as port, channel_to(port) as channel:
        client = Client(channel)
        assert (await client.call("ServerLive")).live
        assert (await client.check()).status == 1


@pytest.mark.contract("GT-13", "SEC-02")
@needs_openssl
async def test_encrypted_endpoint_serves_clients_that_trust_it(
    local: GrpcSettings, certificates: Path
) -> None:
    settings = replace(local, tls=tls(certificates))
    async with open_grpc(Alive(), settings, ExitDeadline(0)) as port:
        assert await live(port, certificates)
        with pytest.raises(grpc.aio.AioRpcError):
            await Client(channel_to(port)).call("ServerLive")


@pytest.mark.contract("GT-14", "SEC-02")
@needs_openssl
async def test_mutual_tls_asks_clients_for_a_certificate(
    local: GrpcSettings, certificates: Path
) -> None:
    settings = replace(local, tls=tls(certificates, mutual=True))
    async with open_grpc(Alive(), settings, ExitDeadline(0)) as port:
        assert await live(port, certificates, "client")
        with pytest.raises(grpc.aio.AioRpcError):
            await live(port, certificates)


@pytest.mark.contract("GT-14", "SEC-02")
@needs_openssl
async def test_mutual_tls_without_a_root_certificate_refuses_every_client(
    local: GrpcSettings, certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As the real server, which starts all the same."""
    mutual = replace(tls(certificates, mutual=True), root_certificate="")
    async with open_grpc(Alive(), replace(local, tls=mutual), ExitDeadline(0)) as port:
        for shown in ("client", ""):
            with pytest.raises(grpc.aio.AioRpcError):
                await live(port, certificates, shown)
    assert "without a root certificate" in caplog.text


@needs_openssl
async def test_missing_certificate_is_named(local: GrpcSettings, certificates: Path) -> None:
    missing = replace(tls(certificates), certificate="/no/such.pem")
    with pytest.raises(OSError, match=r"/no/such\.pem"):
        async with open_grpc(Alive(), replace(local, tls=missing), ExitDeadline(0)):
            pass


async def live(port: int, certificates: Path, name: str = "") -> bool:
    """Whether the server says so to a client that shows the certificate `name`."""
    root = (certificates / "root.pem").read_bytes()
    shown = [(certificates / f"{name}.{kind}").read_bytes() for kind in ("key", "pem") if name]
    credentials = grpc.ssl_channel_credentials(root, *shown)
    async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
        answer = await channel.unary_unary(
            f"/{SERVICE}/ServerLive",
            pb.ServerLiveRequest.SerializeToString,
            pb.ServerLiveResponse.FromString,
        )(pb.ServerLiveRequest())
    return bool(answer.live)
