"""At how many connections one server is full, and what several on one host bear behind one port.

    PYTHONPATH=$(python deploy/compiled_build.py find):tests python -m loadtest.scenarios.fronts \\
        --behind port haproxy

First one server under a load that grows: each connection has one call at a time, over gRPC and
HTTP. `share` is the part of a core that its process used, and `full at` what it would bear with a
core to itself. Then two servers: on one port that both listen on (`--reuse-grpc-port=true`), and
behind proxies as `deploy/proxies` has them, for which PYTHONPATH has `tests`. `us` is the servers'
CPU a call, `proxy us` the proxy's, `least` the part of the calls that the server with fewer of them
got. Last, one of the two is killed under clients that try again: `lost` are those that failed for
good.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from loadtest.load import Load
from loadtest.load import run as run_calls
from loadtest.process import Server, cpu_seconds, family, free_ports, penstock
from loadtest.report import Row, arguments, median_rows, show
from loadtest.scenarios.unary import write_message, write_repository
from penstock_client.client import CallPolicy, Client, ClientError

_PROXIES = ("nginx", "haproxy", "envoy")
_BEHIND = ("port", *_PROXIES)
_TWO = 2
_JSON = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[4],"data":[1.0,2.0,3.0,4.0]}]}'
_CALLERS = 16
"""Clients beside which a server is killed."""


@dataclass(frozen=True, slots=True)
class Together:
    """Servers behind one address, and the process of a proxy, if one is before them."""

    target: str
    servers: Sequence[Server]
    proxy: int = 0


def main() -> None:
    options = _options().parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_repository(directory / "models")
        message = write_message(directory, "identity", 16)
        (directory / "body.json").write_bytes(_JSON)
        with penstock(directory / "models") as server:
            show(
                "one server, a call at a time on each connection",
                median_rows(options.rounds, lambda: list(_alone(server, directory, options))),
                options.json,
            )
        rows = [
            row for way in options.behind for row in _together(way, directory, message, options)
        ]
        if rows:
            show("two servers behind one address", rows, None)


def _options() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 4, 16, 64, 256, 1024])
    parser.add_argument("--behind", nargs="*", choices=_BEHIND, default=["port"])
    parser.add_argument("--calls", type=int, default=20_000, help="beside which a server is killed")
    return parser


# -- one server ----------------------------------------------------------------------------------


def _alone(server: Server, directory: Path, options: argparse.Namespace) -> Iterator[Row]:
    message, body = write_message(directory, "identity", 16), str(directory / "body.json")
    for connections in options.connections:
        load = Load(server.target, message, connections, options.seconds, connections=connections)
        yield _row(server, "gRPC", load)
    for connections in options.connections:
        address = f"127.0.0.1:{server.http_port}"
        path = "/v2/models/identity/infer"
        yield _row(server, "HTTP", Load(address, body, connections, options.seconds, path=path))


def _row(server: Server, wire: str, load: Load) -> Row:
    before = server.own_cpu_seconds()
    outcome = run_calls(load)
    used = server.own_cpu_seconds() - before
    each = used / max(outcome.all_calls, 1)
    return {
        "wire": wire,
        "connections": str(load.in_flight),
        "calls/s": outcome.calls_per_second,
        "us": each * 1e6,
        "share": each * outcome.calls_per_second,
        "full at": 1 / each,
        "p50 ms": outcome.latency_p50,
        "p99 ms": outcome.latency_p99,
    }


# -- two servers ---------------------------------------------------------------------------------


def _together(
    way: str, directory: Path, message: str, options: argparse.Namespace
) -> Iterator[Row]:
    def measure() -> list[Row]:
        with _opened(way, directory) as together:
            return [_shared_row(way, together, message, options)]

    (row,) = median_rows(options.rounds, measure)
    with _opened(way, directory) as together:
        yield {**row, "lost": str(asyncio.run(_lost(together, options.calls)))}


@contextmanager
def _opened(way: str, directory: Path) -> Iterator[Together]:
    with ExitStack() as stack:
        if way == "port":
            (port,) = free_ports(1)
            shared = (f"--grpc-port={port}", "--reuse-grpc-port=true")
            servers = [
                stack.enter_context(penstock(directory / "models", *shared)) for _ in range(_TWO)
            ]
            yield Together(f"127.0.0.1:{port}", servers)
            return
        # Those of the tests, which nobody else needs.
        balancing = import_module("deployment.proxies").balancing
        served = import_module("harness.serving").Served
        servers = [stack.enter_context(penstock(directory / "models")) for _ in range(_TWO)]
        behind = [
            served(
                subprocess.Popen(["true"]),
                {"http": server.http_port, "grpc": server.grpc_port},
                directory / "log",
            )
            for server in servers
        ]
        before = set(family(os.getpid()))
        balanced = stack.enter_context(balancing(way, behind, directory))
        (proxy, *_) = [
            pid
            for pid in family(os.getpid())
            if pid not in before and Path(f"/proc/{pid}/comm").read_text().strip().startswith(way)
        ]
        yield Together(balanced.grpc, servers, proxy)


def _shared_row(way: str, together: Together, message: str, options: argparse.Namespace) -> Row:
    most = max(options.connections[: len(options.connections) // 2 + 1])
    load = Load(together.target, message, most, options.seconds, connections=most)
    processes = [server.pid for server in together.servers]
    proxies = list(family(together.proxy)) if together.proxy else []
    before = [cpu_seconds(pid) for pid in (*processes, *proxies)]
    outcome = run_calls(load)
    used = [
        cpu_seconds(pid) - begun for pid, begun in zip((*processes, *proxies), before, strict=True)
    ]
    servers, proxy = used[: len(processes)], sum(used[len(processes) :])
    calls = max(outcome.all_calls, 1)
    return {
        "behind": way,
        "connections": str(most),
        "calls/s": outcome.calls_per_second,
        "us": sum(servers) / calls * 1e6,
        "proxy us": proxy / calls * 1e6,
        "least": min(servers) / sum(servers),
        "p50 ms": outcome.latency_p50,
        "p99 ms": outcome.latency_p99,
    }


async def _lost(together: Together, calls: int) -> int:
    """Calls that fail for good while one of the servers is killed."""
    policy = CallPolicy(attempts=5, after_loss=True)
    victim, begun, lost = together.servers[0], 0, 0
    values = np.arange(4, dtype=np.float32)

    async def call_on() -> None:
        nonlocal begun, lost
        async with Client(together.target, policy=policy) as client:
            while begun < calls:
                begun += 1
                if begun == calls // 2:
                    os.kill(victim.pid, signal.SIGKILL)
                try:
                    result = await client.infer("identity", {"INPUT0": values})
                    lost += not np.array_equal(result["OUTPUT0"], values)
                except ClientError:
                    lost += 1

    async with asyncio.TaskGroup() as callers:
        for _ in range(_CALLERS):
            callers.create_task(call_on())
    return lost


if __name__ == "__main__":
    main()
