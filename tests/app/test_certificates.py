"""A server whose certificates are replaced while it runs."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from loadtest.authority import Authority, write_pair, write_whole

from access.models import write_models
from harness.serving import Served, serving, wait_until

pytestmark = pytest.mark.slow

AUTHORITY = Authority()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    write_pair(folder, "server", AUTHORITY.signed(dns=["localhost"]))
    return folder


@pytest.fixture(scope="module")
def server(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    flags = [
        f"--{flag}"
        for name in ("grpc", "http")
        for flag in (
            f"{name}-use-ssl=true",
            f"{name}-server-cert={files / 'server.pem'}",
            f"{name}-server-key={files / 'server.key'}",
        )
    ]
    with serving(write_models(folder / "models"), folder / "log", *flags) as served:
        yield served


def metric(server: Served, name: str) -> dict[str, float]:
    """A metric of certificates by endpoint."""
    page = httpx.get(server.metrics).text
    found = re.findall(rf'^penstock_tls_certificate_{name}{{endpoint="(\w+)"}} (\S+)', page, re.M)
    return {endpoint: float(value) for endpoint, value in found}


def shown(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port))


def test_files_are_watched(server: Served, files: Path) -> None:
    before = [shown(server.ports[name]) for name in ("grpc", "http")]
    assert metric(server, "expiry_timestamp_seconds").keys() == {"gRPC", "HTTP"}
    write_whole(files / "server.key", AUTHORITY.signed()[1])
    wait_until(lambda: metric(server, "reload_failures_total") == {"gRPC": 1, "HTTP": 1})
    assert [shown(server.ports[name]) for name in ("grpc", "http")] == before
    write_pair(files, "server", AUTHORITY.signed(dns=["localhost"]))
    wait_until(lambda: {*metric(server, "changes_total").values()} == {1})
    after = [shown(server.ports[name]) for name in ("grpc", "http")]
    assert after[0] == after[1] == (files / "server.pem").read_text()
    assert before[0] != after[0]
    trusting = grpc.ssl_channel_credentials(AUTHORITY.pem)
    with grpc.secure_channel(f"localhost:{server.ports['grpc']}", trusting) as channel:
        grpc.channel_ready_future(channel).result(20)
