"""Load on a server, from a process of its own: closed loops that count and time."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import grpc
import uvloop

from penstock.protocol import grpc_service_pb2 as pb

_SERVICE = "/inference.GRPCInferenceService/"
_CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class Load:
    """`in_flight` loops that call for `seconds`; a message is a serialized `ModelInferRequest`.

    Where there are `further` messages, calls take them in turns. With `rounds` each loop calls so
    many times instead, so that none is cut off at the end.
    """

    target: str
    message_file: str
    in_flight: int
    seconds: float = 0.0
    stream: bool = False
    further: tuple[str, ...] = ()
    rounds: int = 0

    @property
    def calls(self) -> int:
        """How many in all, where that is said."""
        return self.rounds * self.in_flight


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the loops saw: calls, messages (tokens), seconds; latencies in milliseconds."""

    calls: int
    messages: int
    seconds: float
    latency_p50: float
    latency_p99: float
    first_p50: float

    @property
    def calls_per_second(self) -> float:
        return self.calls / self.seconds


def run(load: Load) -> Outcome:
    """Put the load on by the cheapest means that is here: h2load, else a Python client.

    On a machine with few cores the generator takes from the server what it uses itself.
    """
    if load.further or not shutil.which("h2load"):
        return run_python(load)
    return run_h2load(load)


def run_h2load(load: Load) -> Outcome:
    """h2load (Debian: nghttp2-client) knows no gRPC: who uses it checks the answers elsewhere."""
    message = Path(load.message_file).read_bytes()
    connections = min(_CONNECTIONS, load.in_flight)
    method = "ModelStreamInfer" if load.stream else "ModelInfer"
    with tempfile.TemporaryDirectory() as temporary:
        body, log = Path(temporary) / "body", Path(temporary) / "log"
        body.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
        command = ["h2load", "--threads=1", f"--clients={connections}"]
        command += [f"--max-concurrent-streams={load.in_flight // connections}"]
        command += [
            f"--requests={load.calls}" if load.calls else f"--duration={load.seconds * 1000:.0f}ms",
            f"--data={body}",
            f"--log-file={log}",
        ]
        command += ["--window-bits=24", "--connection-window-bits=24"]
        command += ["--header=content-type: application/grpc", "--header=te: trailers"]
        url = f"http://{load.target}{_SERVICE}{method}"
        start = time.perf_counter()
        subprocess.run([*command, url], check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start if load.calls else load.seconds
        rows = [line.split("\t") for line in log.read_text().splitlines()]
    latencies = [int(microseconds) / 1e6 for _, status, microseconds in rows if status == "200"]
    p50, p99 = (_percentile(latencies, share) * 1e3 for share in (0.5, 0.99))
    return Outcome(len(latencies), 0, seconds, p50, p99, 0.0)


def run_python(load: Load) -> Outcome:
    """A `grpc.aio` client in another process; it also knows the time to the first response."""
    command = [sys.executable, "-m", "loadtest.load", json.dumps(asdict(load))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return Outcome(**json.loads(done.stdout))


async def _main(load: Load, messages: list[pb.ModelInferRequest]) -> dict[str, Any]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    count = min(_CONNECTIONS, load.in_flight)
    channels = [grpc.aio.insecure_channel(load.target, options=options) for _ in range(count)]
    worker = _Streams(messages, load) if load.stream else _Calls(messages, load)
    await asyncio.gather(*(worker.once(channel) for channel in channels))
    worker.clear()
    start = time.perf_counter()
    loops = [worker.loop(channels[i % count], start + load.seconds) for i in range(load.in_flight)]
    await asyncio.gather(*loops)
    seconds = time.perf_counter() - start
    await asyncio.gather(*(channel.close() for channel in channels))
    return worker.outcome(seconds)


class _Worker:
    def __init__(self, messages: list[pb.ModelInferRequest], load: Load) -> None:
        self._turns = cycle(messages)
        self.load = load
        self.clear()

    def clear(self) -> None:
        """Forget what was counted while connections opened."""
        self.latencies: list[float] = []
        self.firsts: list[float] = []
        self.messages = 0

    async def once(self, channel: grpc.aio.Channel) -> None:
        raise NotImplementedError

    async def loop(self, channel: grpc.aio.Channel, end: float) -> None:
        """Call again and again until the time is up, or as often as is asked for."""
        if self.load.rounds:
            for _ in range(self.load.rounds):
                await self.once(channel)
            return
        while time.perf_counter() < end:
            await self.once(channel)

    def outcome(self, seconds: float) -> dict[str, Any]:
        """Totals and percentiles."""
        return {
            "calls": len(self.latencies),
            "messages": self.messages,
            "seconds": seconds,
            "latency_p50": _percentile(self.latencies, 0.5) * 1e3,
            "latency_p99": _percentile(self.latencies, 0.99) * 1e3,
            "first_p50": _percentile(self.firsts, 0.5) * 1e3,
        }


class _Calls(_Worker):
    """Unary calls."""

    async def once(self, channel: grpc.aio.Channel) -> None:
        call = channel.unary_unary(
            _SERVICE + "ModelInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )
        message = next(self._turns)
        start = time.perf_counter()
        await call(message)
        self.latencies.append(time.perf_counter() - start)


class _Streams(_Worker):
    """One request a stream; every response counts."""

    async def once(self, channel: grpc.aio.Channel) -> None:
        call = channel.stream_stream(
            _SERVICE + "ModelStreamInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        start, first = time.perf_counter(), 0.0
        async for response in call(iter([next(self._turns)])):
            if response.error_message:
                raise SystemExit(response.error_message)
            first = first or time.perf_counter() - start
            self.messages += 1
        self.firsts.append(first)
        self.latencies.append(time.perf_counter() - start)


def _percentile(values: list[float], share: float) -> float:
    if not values:
        return 0.0
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


if __name__ == "__main__":
    asked = Load(**json.loads(sys.argv[1]))
    files = map(Path, (asked.message_file, *asked.further))
    requests = [pb.ModelInferRequest.FromString(file.read_bytes()) for file in files]
    print(json.dumps(uvloop.run(_main(asked, requests))))
