"""What `make serve` says when its server is ready."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from harness.http_threads import Quiet, answering

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "announce.py"


class Health(Quiet, BaseHTTPRequestHandler):
    """Answers with the server's statuses in turn, and with the last one from then on."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.end_headers()


class Server(HTTPServer):
    """Is ready as its statuses say."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Health)
        self.statuses = [HTTPStatus.OK]


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    with answering(server):
        yield server


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Stands for the server's process."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def announce(process: subprocess.Popen[bytes], server: Server) -> subprocess.Popen[str]:
    numbers = process.pid, server.server_port, 8001, 8002
    command = [sys.executable, str(SCRIPT), *map(str, numbers)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_server_that_becomes_ready_is_announced_with_a_line_to_try(
    process: subprocess.Popen[bytes], server: Server
) -> None:
    server.statuses = [HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.OK]
    with announce(process, server) as announcing:
        out, err = announcing.communicate(timeout=60)
    assert f"curl -s http://localhost:{server.server_port}/v2/models/tiny_llm/generate" in out
    assert f"Serving on http {server.server_port}, grpc 8001, metrics 8002." in out
    assert (announcing.returncode, err) == (0, "")


def test_nothing_is_said_to_serve_before_it_does() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nserve:")[2].partition("\n\n")[0]
    said = [line for line in recipe.splitlines() if "echo" in line]
    assert said
    assert not any("serving" in line for line in said)


def test_another_server_on_the_port_is_not_announced(
    process: subprocess.Popen[bytes], server: Server
) -> None:
    with announce(process, server) as announcing:
        process.kill()
        process.wait()
        said = announcing.communicate(timeout=60)
    assert said == ("", "")
