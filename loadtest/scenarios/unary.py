"""What the server adds to a unary call: `identity` against a bare `grpc.aio` echo."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from loadtest.load import Load, Outcome, run
from loadtest.process import Server, bare_echo, penstock
from loadtest.report import Row, arguments, median_rows, show
from penstock.protocol import grpc_service_pb2 as pb

_CONFIG = """
backend: "identity"
input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1] }]
"""
_IN_PROCESS = 'parameters { key: "penstock.host" value { string_value: "process" } }\n'


def write_repository(directory: Path) -> None:
    """`identity` on a thread of the server, and in a process of its own."""
    for name, config in (("identity", _CONFIG), ("identity_process", _CONFIG + _IN_PROCESS)):
        (directory / name / "1").mkdir(parents=True)
        (directory / name / "config.pbtxt").write_text(config)


def write_message(directory: Path, model: str, floats: int) -> str:
    """A file with a request of so many FP32 values."""
    message = pb.ModelInferRequest(model_name=model)
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[floats])
    message.raw_input_contents.append(np.zeros(floats, np.float32).tobytes())
    path = directory / f"{model}-{floats}.bin"
    path.write_bytes(message.SerializeToString())
    return str(path)


def measured(server: Server, load: Load) -> tuple[Outcome, float]:
    """The outcome, and the server's CPU microseconds a call."""
    before = server.cpu_seconds()
    outcome = run(load)
    return outcome, (server.cpu_seconds() - before) / max(outcome.all_calls, 1) * 1e6


def main() -> None:
    parser = arguments(__doc__)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_repository(directory / "models")
        with penstock(directory / "models") as server, bare_echo() as echo:

            def measure() -> list[Row]:
                return [
                    _row(directory, server, echo, model, in_flight, options.seconds)
                    for model in ("identity", "identity_process")
                    for in_flight in (1, 8, 32)
                ]

            rows = median_rows(options.rounds, measure)
    show("unary ModelInfer, 64 B: Penstock against a bare grpc.aio echo", rows, options.json)


def _row(
    directory: Path, server: Server, echo: Server, model: str, in_flight: int, seconds: float
) -> Row:
    message = write_message(directory, model, 16)
    floor, floor_cpu = measured(echo, Load(echo.target, message, in_flight, seconds))
    ours, cpu = measured(server, Load(server.target, message, in_flight, seconds))
    return {
        "model": model,
        "in flight": str(in_flight),
        "calls/s": ours.calls_per_second,
        "echo calls/s": floor.calls_per_second,
        "ratio": ours.calls_per_second / floor.calls_per_second,
        "cpu us/call": cpu,
        "echo cpu us/call": floor_cpu,
        "ours us": cpu - floor_cpu,
        "p50 ms": ours.latency_p50,
        "echo p50 ms": floor.latency_p50,
        "p99 ms": ours.latency_p99,
    }


if __name__ == "__main__":
    main()
