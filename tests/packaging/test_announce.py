"""What `make serve` says when its server is ready."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "announce.py"


class Ready(BaseHTTPRequestHandler):
    """Answers every request with 200."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    """A server whose port is bound, and which answers nothing until its thread runs."""
    with HTTPServer(("127.0.0.1", 0), Ready, bind_and_activate=False) as server:
        server.server_bind()
        yield server


def answer(server: HTTPServer) -> None:
    server.server_activate()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Stands for the server's process."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def announce(process: subprocess.Popen[bytes], server: HTTPServer) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), str(process.pid), str(server.server_port)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_server_that_becomes_ready_is_announced_with_a_line_to_try(
    process: subprocess.Popen[bytes], server: HTTPServer
) -> None:
    with announce(process, server) as announcing:
        with pytest.raises(subprocess.TimeoutExpired):
            announcing.wait(0.5)
        answer(server)
        out, err = announcing.communicate(timeout=60)
    server.shutdown()
    assert f"curl -s http://localhost:{server.server_port}/v2/models/tiny_llm/generate" in out
    assert (announcing.returncode, err) == (0, "")


def test_another_server_on_the_port_is_not_announced(
    process: subprocess.Popen[bytes], server: HTTPServer
) -> None:
    answer(server)
    with announce(process, server) as announcing:
        process.kill()
        process.wait()
        said = announcing.communicate(timeout=60)
    server.shutdown()
    assert said == ("", "")
