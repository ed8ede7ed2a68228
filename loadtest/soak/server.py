"""The server under test: a process of its own, with its log and a folder for what is temporary."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from loadtest.process import free_ports

_ALLOWED = ["--allow-client-shm=true", "--allow-log-control=true"]
OPTIONS = [
    "--model-control-mode=explicit",
    "--load-model=*",
    "--cache-config=local,size=4194304",
    "--log-verbose=0",
]


@dataclass(slots=True)
class Server:
    """A running server; `temporary` is its `TMPDIR`."""

    process: subprocess.Popen[bytes]
    grpc_port: int
    http_port: int
    metrics_port: int
    log: Path
    temporary: Path
    status: int | None = None

    def stop(self, timeout: float = 60.0) -> None:
        """SIGTERM, and wait; `status` is its exit status, -9 if it had to be killed."""
        if self.status is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.status = self.process.wait()


@contextmanager
def running(
    repository: Path,
    folder: Path,
    other: Sequence[str] = (),
    options: Sequence[str] = OPTIONS,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Server]:
    """`penstock serve`, or another server that takes the same options, ready to answer."""
    command = list(other) or [sys.executable, "-m", "penstock", "serve", *_ALLOWED]
    grpc_port, http_port, metrics_port = free_ports(3)
    command += [f"--model-repository={repository}", f"--grpc-port={grpc_port}"]
    command += [f"--http-port={http_port}", f"--metrics-port={metrics_port}", *options]
    temporary = folder / "tmp"
    temporary.mkdir()
    log = folder / "server.log"
    with log.open("wb") as output:
        variables = {**os.environ, "TMPDIR": str(temporary), **environment}
        process = subprocess.Popen(command, stdout=output, stderr=output, env=variables)
    server = Server(process, grpc_port, http_port, metrics_port, log, temporary)
    try:
        _wait_until_ready(server)
        yield server
    finally:
        server.stop()


def _wait_until_ready(server: Server, timeout: float = 180.0) -> None:
    end = time.monotonic() + timeout
    url = f"http://127.0.0.1:{server.http_port}/v2/health/ready"
    while time.monotonic() < end:
        if server.process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"the server is not ready:\n{server.log.read_text()[-3000:]}")
