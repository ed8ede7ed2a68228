"""The options for limits of HTTP connections, on a server that was started with them."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from harness.serving import Served, serving

pytestmark = pytest.mark.slow

_OPTIONS = (
    "--http-max-header-size=1000",
    "--http-max-header-count=5",
    "--http-header-timeout-secs=1",
    "--http-body-timeout-secs=1",
)
_FIELDS = b"".join(b"x-%d: y\r\n" % number for number in range(5))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "models").mkdir()
    with serving(folder / "models", folder / "log", *_OPTIONS) as server:
        yield server


@pytest.mark.parametrize("port", ["http", "metrics"])
@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nhost: x\r\npad: %b\r\n\r\n" % bytes(b"x" * 1000), 431),
        (b"GET /metrics HTTP/1.1\r\nhost: x\r\n" + _FIELDS + b"\r\n", 431),
        (b"GET /metrics HTTP/1.1\r\nhost", 408),
    ],
    ids=["size", "fields", "time"],
)
def test_head_is_limited_by_options(served: Served, port: str, data: bytes, status: int) -> None:
    assert _answer(served.ports[port], data).startswith(b"HTTP/1.1 %d " % status)


def test_time_of_a_body_is_an_option(served: Served) -> None:
    data = b"POST /v2/repository/index HTTP/1.1\r\nhost: x\r\ncontent-length: 99999\r\n\r\n{"
    assert _answer(served.ports["http"], data).startswith(b"HTTP/1.1 408 ")


def _answer(port: int, data: bytes) -> bytes:
    """What a server with the default limits would not say before 20 s."""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as client:
        client.sendall(data)
        return client.recv(1 << 16)
