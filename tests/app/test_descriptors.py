"""A real server that has no file descriptors left: it serves on, and recovers."""

from __future__ import annotations

import os
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.message import Message

from harness.serving import Served, serving, wait_until
from penstock.protocol import grpc_service_pb2 as pb
from rpc.certificates import needs_openssl, write_certificates

pytestmark = pytest.mark.slow

FLOOD = 300

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS = b"\0\0\0\4\0\0\0\0\0"
_GOAWAY = b"\0\0\10\7" + bytes(13)
"""Without an error; no stream was begun (RFC 9113, section 6.8)."""
_SERVING = b"\x08\1"
"""`HealthCheckResponse` with the status SERVING."""


class Client:
    """One channel, which is there before the flood."""

    def __init__(self, server: Served) -> None:
        self.channel = grpc.insecure_channel(server.grpc)

    def call(self, name: str, request: Message) -> Any:
        method = self.channel.unary_unary(
            f"/inference.GRPCInferenceService/{name}",
            getattr(pb, f"{name}Request").SerializeToString,
            getattr(pb, f"{name}Response").FromString,
        )
        return method(request, timeout=60)

    def watch_health(self) -> Any:
        """A call that stays open; an iterator of serialized `HealthCheckResponse`."""
        return self.channel.unary_stream("/grpc.health.v1.Health/Watch", bytes, bytes)(b"")

    def live(self) -> bool:
        return bool(self.call("ServerLive", pb.ServerLiveRequest()).live)


@contextmanager
def flood(port: int, greeting: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that say nothing, or nothing more."""
    with ExitStack() as stack:
        connections = []
        for _ in range(FLOOD):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connections.append(connection)
            with suppress(ConnectionError):  # it may have been refused already
                connection.sendall(greeting)
        yield connections


def limit(server: Served, more: int) -> None:
    """Let the server have so many descriptors more than it has."""
    pid = server.process.pid
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_files(server) + more, hard))


def open_files(server: Served) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def asleep(server: Served) -> bool:
    """Whether the server waits for something to come."""
    return Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def refused(connection: socket.socket) -> bool:
    """Whether the server has left; raises when it says nothing at all."""
    connection.settimeout(60)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


_CONFIG = """
backend: "identity"
input { name: "X" data_type: TYPE_INT32 dims: 1 }
output { name: "Y" data_type: TYPE_INT32 dims: 1 }
parameters { key: "penstock.host" value: { string_value: "process" } }
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """With a model that is not loaded, and whose instance is a process."""
    (tmp_path / "models" / "apart" / "1").mkdir(parents=True)
    (tmp_path / "models" / "apart" / "config.pbtxt").write_text(_CONFIG)
    explicit = "--model-control-mode=explicit"
    with serving(tmp_path / "models", tmp_path / "log", explicit) as server:
        yield server


@pytest.mark.parametrize("port", ["grpc", "http"])
def test_connections_leave_descriptors_for_models(server: Served, port: str) -> None:
    """Idle connections make room, the oldest first."""
    client = Client(server)
    assert client.live()
    limit(server, 150)
    with flood(server.ports[port]) as connections:
        assert refused(connections[0])
        client.call("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="apart"))
        assert client.call("ModelReady", pb.ModelReadyRequest(name="apart")).ready
        assert server.log.read_text().count("Idle connections are closed") == 1
    wait_until(lambda: Client(server).live())


def _answered(url: str) -> bool:
    return httpx.get(url, timeout=60, verify=False).status_code == 200


def test_idle_connections_lock_nobody_out(server: Served) -> None:
    """Of 256 descriptors, 600 connections that say nothing leave enough for every port."""
    pid = server.process.pid
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (256, hard))
    with flood(server.ports["http"]) as first, flood(server.ports["metrics"]):
        assert refused(first[0])
        for _ in range(3):
            assert _answered(f"http://{server.http}/v2/health/live")
            assert _answered(server.metrics)
            assert Client(server).live()


def test_idle_grpc_connections_lock_nobody_out(server: Served) -> None:
    """They are told to come again later; one with a call keeps its place."""
    pid = server.process.pid
    busy, idle = Client(server), Client(server)
    watch = busy.watch_health()
    assert next(watch) == _SERVING
    assert idle.live()
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (256, hard))
    with flood(server.ports["grpc"], _PREFACE + _SETTINGS) as connections:
        connections[0].settimeout(60)
        received = b"".join(iter(lambda: connections[0].recv(1 << 16), b""))
        assert received.endswith(_GOAWAY)
        for _ in range(3):
            assert _answered(f"http://{server.http}/v2/health/live")
            assert _answered(server.metrics)
            assert Client(server).live()
            assert idle.live()
    assert watch.is_active()
    watch.cancel()


@needs_openssl
def test_unfinished_tls_handshakes_lock_nobody_out(tmp_path: Path) -> None:
    """Of clients that begin one and say no more, the first ones make room for those who go on."""
    certificates = write_certificates(tmp_path)
    (tmp_path / "models").mkdir()
    options = [*_tls_options("http", certificates), *_tls_options("grpc", certificates)]
    options += ["--http-header-timeout-secs=600"]
    with serving(tmp_path / "models", tmp_path / "log", *options) as server:
        pid = server.process.pid
        hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (256, hard))
        with flood(server.ports["http"], _HELLO) as first, flood(server.ports["grpc"], _HELLO):
            assert refused(first[0])
            for _ in range(3):
                assert _live_over_tls(server, "http", certificates)
                assert _live_over_tls(server, "grpc", certificates)
                assert httpx.get(server.metrics, timeout=60, verify=False).status_code == 200
        assert "Idle connections are closed" in server.log.read_text()


_HELLO = b"\x16\3\1\2\0\1\0\1\xfc\3\3"
"""The beginning of a `ClientHello`."""


def _tls_options(port: str, certificates: Path) -> list[str]:
    files = {"cert": certificates / "server.pem", "key": certificates / "server.key"}
    named = [f"--{port}-server-{kind}={file}" for kind, file in files.items()]
    return [f"--{port}-use-ssl=1", *named]


def _live_over_tls(server: Served, port: str, certificates: Path) -> bool:
    """Whether a new client learns over TLS that the server is live."""
    address = f"localhost:{server.ports[port]}"
    if port == "http":
        context = ssl.create_default_context(cafile=str(certificates / "root.pem"))
        answer = httpx.get(f"https://{address}/v2/health/live", verify=context, timeout=60)
        return answer.status_code == 200
    credentials = grpc.ssl_channel_credentials((certificates / "root.pem").read_bytes())
    with grpc.secure_channel(address, credentials) as channel:
        method = channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)
        return bool(method(b"", timeout=60) == _SERVING)


@pytest.mark.parametrize("port", ["grpc", "http"])
def test_server_without_a_descriptor_left_serves_on_and_recovers(server: Served, port: str) -> None:
    client = Client(server)
    assert client.live()
    before, lines = open_files(server), server.log.read_text().count("\n")
    limit(server, 0)
    with flood(server.ports[port]) as connections:
        assert refused(connections[-1])
        wait_until(lambda: asleep(server))
        assert client.live()
        wait_until(lambda: asleep(server))
    wait_until(lambda: open_files(server) <= before)
    limit(server, 1000)
    assert Client(server).live()
    assert server.log.read_text().count("\n") - lines <= 2
