"""What clients cost that do nothing, and what those cost that do not read.

    python -m loadtest.scenarios.connections [--connections 10000] [--streams 1000] [--json FILE]

Shown are the server's resident memory per idle connection of gRPC and of HTTP, per stream whose
client reads nothing of a flood of 4 KiB responses, and the latency of another client's unary calls
before and beside the slow readers. Clients are bare sockets with a minimum of HTTP/2.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from loadtest.places import results_file
from loadtest.process import Server, penstock
from loadtest.python_models import FLOOD
from loadtest.report import Row, show
from penstock.http2 import frames
from penstock.http2.frames import FrameType
from penstock.http2.grpc import PREFIX
from penstock.http2.hpack import encode
from penstock.protocol import grpc_service_pb2 as pb

_SERVICE = "/inference.GRPCInferenceService"
_PER_CONNECTION = 100
"""Streams of a slow reader: each connection has some, as a window of its own is theirs together."""


async def _connect(server: Server) -> asyncio.StreamWriter:
    """A connection that has had its settings acknowledged, and says nothing more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.grpc_port)
    writer.write(frames.PREFACE + frames.settings([]) + frames.settings_ack())
    await reader.readuntil(frames.settings_ack())
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    return writer


def _request(stream_id: int) -> bytes:
    message = pb.ModelInferRequest(model_name="flood", raw_input_contents=[bytes(4)])
    message.inputs.add(name="IN", datatype="INT32", shape=[1])
    data = message.SerializeToString()
    head = [(b":method", b"POST"), (b":scheme", b"http")]
    head += [(b":path", f"{_SERVICE}/ModelStreamInfer".encode()), (b"te", b"trailers")]
    block = encode([*head, (b"content-type", b"application/grpc")])
    content = PREFIX.pack(0, len(data)) + data
    return frames.headers(stream_id, block, 1 << 14, end_stream=False) + frames.frame(
        FrameType.DATA, frames.END_STREAM, stream_id, content
    )


async def _latencies(server: Server, seconds: float) -> list[float]:
    """Milliseconds of `ServerLive`, one call after another."""
    taken = []
    async with grpc.aio.insecure_channel(server.target) as channel:
        call: Any = channel.unary_unary(
            f"{_SERVICE}/ServerLive",
            pb.ServerLiveRequest.SerializeToString,
            pb.ServerLiveResponse.FromString,
        )
        await call(pb.ServerLiveRequest())
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begun = time.perf_counter()
            await call(pb.ServerLiveRequest())
            taken.append((time.perf_counter() - begun) * 1e3)
            await asyncio.sleep(0.005)
    return sorted(taken)


def _memory(server: Server) -> float:
    """Resident KiB that are the server's own."""
    lines = Path(f"/proc/{server.pid}/smaps_rollup").read_text().splitlines()
    return float(sum(int(line.split()[1]) for line in lines if line.startswith("Private_")))


def _row(name: str, count: int, before: float, after: float, taken: list[float]) -> Row:
    return {
        "clients": name,
        "MiB before": before / 1024,
        "MiB with": after / 1024,
        "KiB each": (after - before) / count,
        "p50 ms": statistics.median(taken) if taken else 0.0,
        "p99 ms": taken[int(len(taken) * 0.99)] if taken else 0.0,
    }


async def _connect_http(server: Server) -> asyncio.StreamWriter:
    """A connection of HTTP that has been answered once, and says nothing more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
    writer.write(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    return writer


async def _idle_http(server: Server, count: int, seconds: float) -> list[Row]:
    return await _idle(server, count, seconds, _connect_http, "HTTP")


async def _idle(
    server: Server,
    count: int,
    seconds: float,
    connect: Callable[[Server], Awaitable[asyncio.StreamWriter]] = _connect,
    protocol: str = "gRPC",
) -> list[Row]:
    alone, before = await _latencies(server, seconds), _memory(server)
    idle = []
    for start in range(0, count, 100):
        some = min(100, count - start)
        idle += await asyncio.gather(*(connect(server) for _ in range(some)))
    after = _memory(server)
    taken = await _latencies(server, seconds)
    _leave(idle)
    name = f"{count} idle connections of {protocol}"
    return [_row("none", 1, before, before, alone), _row(name, count, before, after, taken)]


async def _unread(server: Server, count: int, seconds: float) -> list[Row]:
    alone, before = await _latencies(server, seconds), _memory(server)
    slow = []
    for first in range(0, count, _PER_CONNECTION):
        slow.append(await _connect(server))
        for number in range(min(_PER_CONNECTION, count - first)):
            slow[-1].write(_request(2 * number + 1))
    await asyncio.sleep(3)
    after, spent = _memory(server), server.cpu_seconds()
    taken = await _latencies(server, seconds)
    later = _memory(server)
    print(f"CPU beside {count} unread streams: {server.cpu_seconds() - spent:.2f} s")
    _leave(slow)
    return [
        _row("none", 1, before, before, alone),
        _row(f"{count} streams unread", count, before, after, taken),
        _row("the same, later", count, before, later, taken),
    ]


def _leave(clients: list[asyncio.StreamWriter]) -> None:
    for writer in clients:
        writer.transport.abort()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--transport", choices=("grpcio", "native"), default="native")
    parser.add_argument("--json", type=results_file, help="where to write the figures")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the server inherits it
    with tempfile.TemporaryDirectory() as temporary:
        models = Path(temporary)
        (models / "flood" / "1").mkdir(parents=True)
        (models / "flood" / "1" / "model.py").write_text(FLOOD)
        rows: list[Row] = []
        idle = options.connections
        for measure, count in ((_idle, idle), (_idle_http, idle), (_unread, options.streams)):
            # Each with a server of its own: memory that was torn is used again.
            with penstock(models, f"--grpc-transport={options.transport}") as server:
                rows += asyncio.run(measure(server, count, options.seconds))
    show(f"Idle and slow clients, {options.transport}", rows, options.json)


if __name__ == "__main__":
    main()
