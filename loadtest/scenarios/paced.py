"""Tokens at a steady pace: how late each one is, and what it costs, over both transports.

A model in Python sends on every stream a response each 20 ms that holds the time of its making;
the client, on the same machine, compares that with its own clock.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import dedent

import numpy as np

from loadtest.paced_client import Paced
from loadtest.process import penstock
from loadtest.report import Row, arguments, median_rows, show

_PACE = 0.02
_TRANSPORTS = ("native", "grpcio")

_CODE = """
import asyncio
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        for request in requests:
            count, pace = pb_utils.get_input_tensor_by_name(request, "PLAN").as_numpy()
            asyncio.create_task(self.send(request.get_response_sender(), int(count), pace))

    async def send(self, sender, count, pace):
        due = time.monotonic()
        for _ in range(count):
            due += pace
            await asyncio.sleep(due - time.monotonic())
            made = pb_utils.Tensor("MADE", np.array([time.monotonic_ns()], np.int64))
            sender.send(pb_utils.InferenceResponse([made]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_CONFIG = """
backend: "python"
input [{ name: "PLAN" data_type: TYPE_FP64 dims: [2] }]
output [{ name: "MADE" data_type: TYPE_INT64 dims: [1] }]
model_transaction_policy { decoupled: true }
"""


def write_repository(directory: Path) -> None:
    """The model `paced`."""
    (directory / "paced" / "1").mkdir(parents=True)
    (directory / "paced" / "config.pbtxt").write_text(_CONFIG)
    (directory / "paced" / "1" / "model.py").write_text(dedent(_CODE).lstrip())


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--streams", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        repository = Path(temporary)
        write_repository(repository)

        def measure() -> list[Row]:
            rows = [
                _row(repository, name, options.streams, options.seconds) for name in _TRANSPORTS
            ]
            for row in rows:
                row["cpu ratio"] = float(row["cpu us"]) / float(rows[-1]["cpu us"])
            return list(rows)

        rows = median_rows(options.rounds, measure)
    title = f"{options.streams} streams, a response each {_PACE * 1e3:.0f} ms"
    show(title, rows, options.json)


def _row(repository: Path, transport: str, streams: int, seconds: float) -> dict[str, float | str]:
    with penstock(repository, f"--grpc-transport={transport}") as server:
        plan = Paced(server.target, streams, round(seconds / _PACE), _PACE)
        before = server.cpu_seconds(), server.own_cpu_seconds()
        command = [sys.executable, "-m", "loadtest.paced_client", json.dumps(plan)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        used, own = server.cpu_seconds() - before[0], server.own_cpu_seconds() - before[1]
    late = np.frombuffer(done.stdout, np.float64) * 1e3
    return {
        "transport": transport,
        "responses": len(late),
        "cpu us": used / len(late) * 1e6,
        "front us": own / len(late) * 1e6,
        "late p50 ms": float(np.percentile(late, 50)),
        "late p99 ms": float(np.percentile(late, 99)),
        "late max ms": float(late.max()),
    }


if __name__ == "__main__":
    main()
