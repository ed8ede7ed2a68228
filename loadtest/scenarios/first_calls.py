"""Times of a first call, which loads its model, and of the next one after a crash.

    python -m loadtest.scenarios.first_calls --rounds 8 [--models 2000]

A small model in Python with a spare process and without, its restart after `kill -9`, and ONNX
models on threads of the server and in processes, beside what their session takes in an interpreter
that has imported ONNX Runtime; `first` is the first one of a server. With `--models`, how long a
server takes that knows so many, and what memory; beside an empty repository. All are medians, of
calls in turns.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import grpc
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from loadtest.process import Server, penstock
from loadtest.report import Row, arguments, show
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol.grpc_service_pb2_grpc import GRPCInferenceServiceStub

_TENSORS = """
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
_PROCESS = 'parameters { key: "penstock.host" value { string_value: "process" } }\n'
_SESSION = """
import sys, time
import onnxruntime
begun = time.perf_counter()
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
print(time.perf_counter() - begun)
"""
_WEIGHTS = 1 << 20  # numbers, 4 MiB
_PID = re.compile(r'^penstock_model_process_pid\{.*?model="([^"]+)".*\} (\S+)$', re.MULTILINE)


def main() -> None:
    parser = arguments(__doc__, timed=False)
    parser.add_argument("--models", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder, "models")
        _write_python(models, "small")
        for name, host in (("graph", ""), ("other", ""), ("apart", _PROCESS), ("next", _PROCESS)):
            _write_onnx(models, name, host)
        rounds = [_round(models) for _ in range(options.rounds)]
        show("milliseconds", _rows(rounds), options.json)
        if options.models:
            many = Path(folder, "many")
            for number in range(options.models):
                _write_python(many, f"model{number}")
            Path(folder, "none").mkdir()
            show("a start", [_start(Path(folder, "none"), 0), _start(many, options.models)], None)


def _rows(rounds: Sequence[dict[str, float]]) -> list[Row]:
    return [{"what": k, "ms": statistics.median(one[k] for one in rounds)} for k in rounds[0]]


def _round(models: Path) -> dict[str, float]:
    found = {}
    for spares in (0, 1):
        with _demand(models, f"--spare-processes={spares}") as server, _Caller(server) as caller:
            kind = "with a spare process" if spares else "without"
            time.sleep(2)  # the spare one starts beside the server's own start
            found[f"Python, first call, {kind}"] = caller.timed("small")
            time.sleep(2)
            found[f"Python, after kill -9, {kind}"] = caller.after_kill("small")
            if spares:
                found["ONNX on a thread, first"] = caller.timed("graph")
                found["ONNX on a thread, next"] = caller.timed("other")
                found["ONNX in a process, first"] = caller.timed("apart")
                time.sleep(2)
                found["ONNX in a process, next"] = caller.timed("next")
    command = [sys.executable, "-c", _SESSION, str(models / "graph" / "1" / "model.onnx")]
    found["its session alone"] = 1000 * float(subprocess.check_output(command))
    return found


def _demand(models: Path, *flags: str) -> AbstractContextManager[Server]:
    return penstock(models, "--model-control-mode=demand", "--measured-sizes=off", *flags)


class _Caller:
    """Calls models of a server with one number each."""

    def __init__(self, server: Server) -> None:
        self._channel = grpc.insecure_channel(server.target)
        self._stub = GRPCInferenceServiceStub(self._channel)
        self._metrics = f"http://127.0.0.1:{server.metrics_port}/metrics"

    def __enter__(self) -> _Caller:
        self._stub.ServerLive(pb.ServerLiveRequest())
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self, model: str) -> None:
        message = pb.ModelInferRequest(model_name=model)
        message.inputs.add(name="X", datatype="FP32", shape=[1])
        message.raw_input_contents.append(np.zeros(1, np.float32).tobytes())
        self._stub.ModelInfer(message, timeout=60)

    def timed(self, model: str) -> float:
        """Milliseconds of a call."""
        return _milliseconds(lambda: self.call(model))

    def after_kill(self, model: str) -> float:
        """Milliseconds from the end of the model's process to an answer of the next one."""
        with urllib.request.urlopen(self._metrics) as page:
            pids = dict(_PID.findall(page.read().decode()))
        os.kill(int(float(pids[model])), signal.SIGKILL)
        return _milliseconds(lambda: self._until_answered(model))

    def _until_answered(self, model: str) -> None:
        while True:
            with suppress(grpc.RpcError):
                self.call(model)
                return
            time.sleep(0.002)


def _start(models: Path, number: int) -> Row:
    """Seconds from the command until `ready`, and the memory that is the server's own."""
    begun = time.perf_counter()
    with _demand(models) as server:
        seconds = time.perf_counter() - begun
        return {"models": number, "seconds": seconds, "MiB": _private(server.pid) / 1024}


def _private(pid: int) -> int:
    """KiB of a process's pages that no other one has."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private"))


def _milliseconds(what: Callable[[], object]) -> float:
    begun = time.perf_counter()
    what()
    return 1000 * (time.perf_counter() - begun)


def _write_python(models: Path, name: str) -> None:
    folder = models / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(_MODEL)
    (folder.parent / "config.pbtxt").write_text('backend: "python"' + _TENSORS)


def _write_onnx(models: Path, name: str, host: str) -> None:
    """A graph that adds one, with weights that are summed, and are zero."""
    weights = numpy_helper.from_array(np.zeros(_WEIGHTS, np.float32), "weights")
    one = numpy_helper.from_array(np.ones(1, np.float32), "one")
    rows = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None]) for n in "XY"]
    nodes = [
        helper.make_node("ReduceSum", ["weights"], ["nothing"], keepdims=0),
        helper.make_node("Add", ["X", "one"], ["sum"]),
        helper.make_node("Add", ["sum", "nothing"], ["Y"]),
    ]
    graph = helper.make_graph(nodes, name, rows[:1], rows[1:], [weights, one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    folder = models / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder.parent / "config.pbtxt").write_text('backend: "onnxruntime"' + _TENSORS + host)


if __name__ == "__main__":
    main()
