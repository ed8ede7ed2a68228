"""A client that does not read: what the server keeps for it, and what its neighbours notice.

    python -m loadtest.scenarios.slow_reader [--seconds 8] [--transport grpcio]

A flood of responses of 4 KiB and a stream of tokens are opened and not read, while another client
streams tokens at its own pace. Shown are its times between tokens without and with the slow
readers, and the server's memory.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from tests.harness.cancelling import tokens_message

from loadtest.process import Server, penstock
from loadtest.python_models import FLOOD
from penstock.demo import write_demo
from penstock.protocol import grpc_service_pb2 as pb

_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
_READERS = 4


def _flood_message() -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="flood")
    message.inputs.add(name="IN", datatype="INT32", shape=[1])
    message.raw_input_contents.append(bytes(4))
    return message


@asynccontextmanager
async def _call(target: str, message: pb.ModelInferRequest) -> AsyncIterator[Any]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        method = channel.stream_stream(
            _METHOD,
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        call = method(iter([message]))
        yield call
        call.cancel()


async def _pace(target: str, seconds: float) -> list[float]:
    """Times between the tokens of a client that reads, in milliseconds."""
    gaps: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        last = 0.0
        async with _call(target, tokens_message()) as call:
            async for _ in call:
                now = time.perf_counter()
                if last:
                    gaps.append((now - last) * 1e3)
                last = now
    return gaps


async def _measure(server: Server, seconds: float) -> None:
    quiet = await _pace(server.target, seconds)
    before = _memory(server)
    async with _slow(server.target, _READERS):
        await asyncio.sleep(1)
        disturbed = await _pace(server.target, seconds)
        after = _memory(server)
    _show("alone", quiet)
    _show("beside slow readers", disturbed)
    print(f"memory of the server: {before:.1f} MiB before, {after:.1f} MiB with {_READERS} floods")


@asynccontextmanager
async def _slow(target: str, count: int) -> AsyncIterator[None]:
    """Floods of which each client reads one response, and streams of tokens of which none is."""
    if not count:
        async with _call(target, tokens_message()):
            yield
        return
    async with _call(target, _flood_message()) as call, _slow(target, count - 1):
        await call.read()
        yield


def _memory(server: Server) -> float:
    """Resident MiB of the process that talks to clients."""
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _show(name: str, gaps: list[float]) -> None:
    ranked = sorted(gaps)
    p50, p99 = statistics.median(ranked), ranked[int(len(ranked) * 0.99)]
    print(f"{name:>20}: {len(gaps)} tokens, p50 {p50:.2f} ms, p99 {p99:.2f} ms between them")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--transport", choices=("grpcio", "native"), default="native")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        models = Path(temporary) / "models"
        write_demo(models, report=lambda _: None)
        (models / "flood" / "1").mkdir(parents=True)
        (models / "flood" / "1" / "model.py").write_text(FLOOD)
        with penstock(models, f"--grpc-transport={options.transport}") as server:
            asyncio.run(_measure(server, options.seconds))


if __name__ == "__main__":
    main()
