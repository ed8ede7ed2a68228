"""Calls of a model beside loads of others, and beside as much processor time of something else.

    python -m loadtest.scenarios.beside_loads --rounds 5 --seconds 10 [--pause 0]

A model in Python is called fifty times a second over gRPC, one call at a time, in turns: `alone`;
`loads`, while three others are unloaded and loaded, one at a time, with a `--pause` between;
`other`, while two processes that have nothing to do with the server burn as much processor time as
the loads did, in as many pieces. What `other` costs no server can save whose loads take that time.
Shown are the percentiles of all rounds together, the cores in use beyond those of the calls, and
the 99th percentile by that of `alone`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np

from loadtest.process import Server, penstock
from loadtest.report import Row, arguments, show
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol.grpc_service_pb2_grpc import GRPCInferenceServiceStub

_CONFIG = """
backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
_MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(one, "X").as_numpy() for one in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + 1)]) for x in found]
"""
_OTHERS = ("other0", "other1", "other2")
_LOADS = """
import itertools, sys, time, urllib.request
url, pause, *names = sys.argv[1:]
for name in itertools.cycle(names):
    for verb in ("unload", "load"):
        address = f"{url}/v2/repository/models/{name}/{verb}"
        urllib.request.urlopen(urllib.request.Request(address, method="POST")).close()
    print(end=".", flush=True)
    time.sleep(float(pause))
"""
_BURNS = """
import sys, time
busy, period = map(float, sys.argv[1:])
while True:
    begun, used = time.monotonic(), time.process_time()
    while time.process_time() - used < busy:
        pass
    time.sleep(max(0.0, period - (time.monotonic() - begun)))
"""
_BURNERS = 2
_PACE = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two loads")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        for name in ("resident", *_OTHERS):
            (models / name / "1").mkdir(parents=True)
            (models / name / "config.pbtxt").write_text(_CONFIG)
            (models / name / "1" / "model.py").write_text(_MODEL)
        flags = "--model-control-mode=explicit", "--load-model=*"
        with penstock(models, *flags) as server, grpc.insecure_channel(server.target) as channel:
            stub = GRPCInferenceServiceStub(channel)
            turns = _Turns(server, lambda: _call(stub), options.seconds, options.pause)
            for _ in range(options.rounds):
                turns.take()
    show("calls beside loads", turns.rows(), options.json)


def _call(stub: GRPCInferenceServiceStub) -> None:
    message = pb.ModelInferRequest(model_name="resident")
    message.inputs.add(name="X", datatype="FP32", shape=[1])
    message.raw_input_contents.append(np.zeros(1, np.float32).tobytes())
    stub.ModelInfer(message, timeout=60)


class _Turns:
    """Measures the three ways after each other; keeps the times of all rounds."""

    def __init__(
        self, server: Server, call: Callable[[], None], seconds: float, pause: float
    ) -> None:
        self._server, self._call = server, call
        self._seconds, self._pause = seconds, pause
        self._times: dict[str, list[float]] = {"alone": [], "loads": [], "other": []}
        self._cores: dict[str, list[float]] = {"loads": [], "other": []}
        self._pieces: list[float] = []

    def take(self) -> None:
        """One round."""
        calls = self._measured("alone")
        url = f"http://127.0.0.1:{self._server.http_port}"
        with _running(_LOADS, url, self._pause, *_OTHERS) as (driver,):
            cores = self._measured("loads") - calls
        pieces = len(driver.stdout.read() if driver.stdout else b"") / self._seconds
        self._cores["loads"].append(cores)
        self._pieces.append(pieces)
        busy = cores / pieces / _BURNERS
        with _running(_BURNS, busy, 1 / pieces, count=_BURNERS) as burners:
            before = sum(map(_used, burners))
            self._measured("other")
            self._cores["other"].append((sum(map(_used, burners)) - before) / self._seconds)

    def _measured(self, way: str) -> float:
        """Call for a while; the cores that the server and its processes took."""
        end, used = time.monotonic() + self._seconds, self._server_used()
        while (begun := time.monotonic()) < end:
            self._call()
            took = time.monotonic() - begun
            self._times[way].append(1000 * took)
            time.sleep(max(0.0, _PACE - took))
        return (self._server_used() - used) / self._seconds

    def _server_used(self) -> float:
        """Seconds of processor time of the server, of its processes, and of those that ended."""
        words = Path(f"/proc/{self._server.pid}/stat").read_text().rpartition(")")[2].split()
        return self._server.cpu_seconds() + (int(words[13]) + int(words[14])) / _TICKS

    def rows(self) -> list[Row]:
        """The figures."""
        alone = _p99(self._times["alone"])
        return [
            {
                "way": way,
                "calls": len(times),
                "p50 ms": statistics.median(times),
                "p99 ms": _p99(times),
                "by alone": _p99(times) / alone,
                "cores": statistics.mean(self._cores.get(way, [0.0])),
                "a second": 0.0 if way == "alone" else statistics.mean(self._pieces),
            }
            for way, times in self._times.items()
        ]


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[int(0.99 * (len(times) - 1))]


def _used(process: subprocess.Popen[bytes]) -> float:
    words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


@contextmanager
def _running(code: str, *given: object, count: int = 1) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-c", code, *map(str, given)]
    made = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        yield made
    finally:
        for process in made:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
