"""What a response of a stream costs: the `repeat` backend against a bare `grpc.aio` server.

Both make the same responses, in their event loop: all at once, each a millisecond after the one
before (so in a turn of the loop that it has for itself), or at the pace of a language model.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loadtest.load import Load
from loadtest.process import Server, bare_echo, penstock
from loadtest.report import Row, arguments, median_rows, show
from loadtest.scenarios.unary import measured
from penstock.protocol import grpc_service_pb2 as pb

REPEAT = """
backend: "repeat"
input [
  { name: "IN" data_type: TYPE_INT32 dims: [-1] },
  { name: "DELAY" data_type: TYPE_UINT32 dims: [-1] },
  { name: "WAIT" data_type: TYPE_UINT32 dims: [1] }
]
output [
  { name: "OUT" data_type: TYPE_INT32 dims: [1] },
  { name: "IDX" data_type: TYPE_UINT32 dims: [1] }
]
model_transaction_policy { decoupled: true }
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """On each of so many streams `rounds` requests; each gets `responses`, `delay` ms apart."""

    streams: int
    rounds: int
    responses: int = 500
    delay: int = 0

    @property
    def label(self) -> str:
        return f"every {self.delay} ms" if self.delay else "at once"

    def write(self, directory: Path) -> str:
        """A file with the request."""
        message = pb.ModelInferRequest(model_name="repeat")
        tensors = {
            "IN": np.zeros(self.responses, np.int32),
            "DELAY": np.full(self.responses, self.delay, np.uint32),
            "WAIT": np.zeros(1, np.uint32),
        }
        for name, array in tensors.items():
            datatype = array.dtype.name.upper()
            message.inputs.add(name=name, datatype=datatype, shape=array.shape)
            message.raw_input_contents.append(array.tobytes())
        path = directory / f"{self.responses}-{self.delay}.bin"
        path.write_bytes(message.SerializeToString())
        return str(path)


def plans() -> Iterator[Plan]:
    """Every case, in the order of the table."""
    yield Plan(streams=1, rounds=200)
    yield Plan(streams=8, rounds=40)
    yield Plan(streams=64, rounds=5)
    yield Plan(streams=1, rounds=5, delay=1)
    yield Plan(streams=64, rounds=3, responses=50, delay=20)


def main() -> None:
    options = arguments(__doc__, timed=False).parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        (directory / "models" / "repeat" / "1").mkdir(parents=True)
        (directory / "models" / "repeat" / "config.pbtxt").write_text(REPEAT)
        with penstock(directory / "models") as server, bare_echo() as echo:

            def measure() -> list[Row]:
                return [_row(directory, server, echo, plan) for plan in plans()]

            rows = median_rows(options.rounds, measure)
    show("responses of a stream: Penstock against a bare grpc.aio server", rows, options.json)


def _row(directory: Path, server: Server, echo: Server, plan: Plan) -> Row:
    message = plan.write(directory)
    floor, floor_cpu = _response(echo, message, plan)
    ours, cpu = _response(server, message, plan)
    return {
        "responses": plan.label,
        "streams": str(plan.streams),
        "responses/s": ours,
        "grpc.aio's": floor,
        "ratio": ours / floor,
        "cpu us/response": cpu,
        "grpc.aio's us": floor_cpu,
        "cpu ratio": cpu / floor_cpu,
    }


def _response(server: Server, message: str, plan: Plan) -> tuple[float, float]:
    """Responses a second, and CPU microseconds of the server for one."""
    load = Load(server.target, message, plan.streams, stream=True, rounds=plan.rounds)
    outcome, cpu = measured(server, load)
    return outcome.calls_per_second * plan.responses, cpu / plan.responses


if __name__ == "__main__":
    main()
