"""A model without a server: what its instances do with batches that are ready, size by size.

    python -m loadtest.offline MODEL_DIRECTORY MESSAGE_FILE SECONDS

Prints the best size as JSON. The message is a serialized `ModelInferRequest` of one row.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from penstock.core.backend import find_backend
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor
from penstock.models.config.defaults import with_instances
from penstock.models.config.pbtxt import read_pbtxt
from penstock.protocol import grpc_service_pb2 as pb
from penstock.testing import RunningInstance, running

SIZES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Offline:
    """Batches of one size: rows a second, and CPU microseconds a row."""

    size: int
    rows_per_second: float
    cpu_per_row: float


def best(model: Path, message_file: str, seconds: float) -> Offline:
    """The size with the highest rate, measured in a process of its own."""
    command = [sys.executable, "-m", "loadtest.offline", str(model), message_file, str(seconds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return Offline(**json.loads(done.stdout))


async def _best(model: Path, request: InferenceRequest, seconds: float) -> Offline:
    config = with_instances(read_pbtxt(model / "config.pbtxt"))
    backend = find_backend(config.backend)
    count = sum(group.count for group in config.instance_group)
    async with AsyncExitStack() as stack:
        instances = [
            await stack.enter_async_context(running(backend, config, model / "1"))
            for _ in range(count)
        ]
        found = [await _measured(instances, [request] * size, seconds) for size in SIZES]
    return max(found, key=lambda offline: offline.rows_per_second)


async def _measured(
    instances: list[RunningInstance], batch: list[InferenceRequest], seconds: float
) -> Offline:
    """All instances at once, each with one batch after the other."""
    rows = 0
    start, cpu = time.perf_counter(), time.process_time()

    async def work(instance: RunningInstance) -> None:
        nonlocal rows
        while time.perf_counter() - start < seconds:
            await instance.backend.execute(batch)
            rows += len(batch)

    await asyncio.gather(*map(work, instances))
    used = time.process_time() - cpu
    return Offline(len(batch), rows / (time.perf_counter() - start), used / rows * 1e6)


def _request(message: pb.ModelInferRequest) -> InferenceRequest:
    pairs = zip(message.inputs, message.raw_input_contents, strict=True)
    inputs = {t.name: Tensor(DataType(t.datatype), t.shape, raw) for t, raw in pairs}
    return InferenceRequest(message.model_name, inputs=inputs)


if __name__ == "__main__":
    directory, file, length = sys.argv[1:]
    asked = _request(pb.ModelInferRequest.FromString(Path(file).read_bytes()))
    print(json.dumps(asdict(uvloop.run(_best(Path(directory), asked, float(length))))))
