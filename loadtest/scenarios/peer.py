"""Models in Python through this server and through the real one, side by side.

    python -m loadtest.scenarios.peer --peer "COMMAND"

COMMAND starts the other server in the foreground and takes its usual options, which are added.
Without one, our own figures are printed alone. CPU is what a server uses a call (or a response),
all its processes; `front` is our first process alone.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np

from loadtest.load import Load, Outcome, run
from loadtest.process import Server, peer, penstock
from loadtest.python_models import write_python_models
from loadtest.report import Row, arguments, median_rows, show
from penstock.protocol import grpc_service_pb2 as pb

_SERVICE = "/inference.GRPCInferenceService/"
_SIZES = {"64 B": 64, "64 KiB": 64 << 10, "1 MiB": 1 << 20}
_RESPONSES = 500


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of call, so many of them in flight; `responses` is what each is answered with.

    Long ones are made `rounds` times: at a limit of time, what is cut off would count for nothing.
    """

    name: str
    message: pb.ModelInferRequest
    in_flight: int
    responses: int = 1
    rounds: int = 0

    @property
    def stream(self) -> bool:
        return self.responses > 1


@dataclass(frozen=True, slots=True)
class _Measured:
    outcome: Outcome
    cpu: float
    front: float


def cases() -> Iterator[Case]:
    """Every case, in the order of the table."""
    for label, size in _SIZES.items():
        for in_flight in (1, 8, 32, 64) if size == 64 else (1, 8, 32):
            yield Case(f"identity {label}", _floats("identity", size), in_flight)
    for model in ("batched", "steps_1", "steps_2", "caller"):
        for in_flight in (1, 8, 32):
            yield Case(f"{model} 64 B", _floats(model, 64), in_flight)
    for in_flight, rounds in ((1, 48), (8, 12), (64, 3)):
        name = f"count, {_RESPONSES} responses"
        yield Case(name, _count(_RESPONSES), in_flight, _RESPONSES, rounds)


def _floats(model: str, size: int) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name=model)
    shape = [1, size // 4] if model == "batched" else [size // 4]
    message.inputs.add(name="INPUT0", datatype="FP32", shape=shape)
    message.raw_input_contents.append(np.arange(size // 4, dtype=np.float32).tobytes())
    return message


def _count(responses: int) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="count")
    message.inputs.add(name="COUNT", datatype="INT32", shape=[1])
    message.raw_input_contents.append(np.array([responses], np.int32).tobytes())
    return message


def check(server: Server, case: Case) -> None:
    """Stop the run unless the server gives the right answer."""
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(server.target, options=options) as channel:
        answers = list(_answers(channel, case))
    if case.stream:
        right = [np.array([n], np.int32).tobytes() for n in range(case.responses)]
    else:
        right = list(case.message.raw_input_contents)
    if answers != right:
        raise SystemExit(f"{case.name}: a wrong answer from {server.target}")


def _answers(channel: grpc.Channel, case: Case) -> Iterator[bytes]:
    serialize = pb.ModelInferRequest.SerializeToString
    if not case.stream:
        unary = channel.unary_unary(
            _SERVICE + "ModelInfer", serialize, pb.ModelInferResponse.FromString
        )
        yield from unary(case.message).raw_output_contents
        return
    streaming = channel.stream_stream(
        _SERVICE + "ModelStreamInfer", serialize, pb.ModelStreamInferResponse.FromString
    )
    for answer in streaming(iter([case.message])):
        yield from answer.infer_response.raw_output_contents


def measured(server: Server, load: Load) -> _Measured:
    """The outcome, and CPU microseconds a response: of all processes, and of the first."""
    before, front = server.cpu_seconds(), server.own_cpu_seconds()
    outcome = run(load)
    each = 1e6 / max(outcome.all_messages, 1)
    return _Measured(
        outcome,
        (server.cpu_seconds() - before) * each,
        (server.own_cpu_seconds() - front) * each,
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--peer", default="", help="command that starts the other server")
    parser.add_argument("--cases", default="", help="regular expression that a case must match")
    parser.add_argument("--serve", default="", help="further options of penstock serve")
    options = parser.parse_args()
    chosen = [case for case in cases() if re.search(options.cases, case.name)]
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as servers:
        directory = Path(temporary)
        write_python_models(directory / "models")
        ours = servers.enter_context(penstock(directory / "models", *shlex.split(options.serve)))
        other = None
        if options.peer:
            other = servers.enter_context(peer(shlex.split(options.peer), directory / "models"))
        both = [server for server in (ours, other) if server is not None]
        for case in chosen:
            for server in both:
                check(server, case)

        def measure() -> list[Row]:
            return [_row(directory, both, case, options.seconds) for case in chosen]

        rows = median_rows(options.rounds, measure)
    show("Python models: Penstock beside its peer", rows, options.json)


def _row(directory: Path, servers: Sequence[Server], case: Case, seconds: float) -> Row:
    file = directory / "message"
    file.write_bytes(case.message.SerializeToString())
    runs = [
        measured(
            server,
            Load(
                server.target, str(file), case.in_flight, seconds, case.stream, rounds=case.rounds
            ),
        )
        for server in servers
    ]
    own = runs[0]
    row: dict[str, float | str] = {
        "case": case.name,
        "in flight": str(case.in_flight),
        "rate": own.outcome.calls_per_second * case.responses,
        "cpu us": own.cpu,
        "front us": own.front,
        "p50 ms": own.outcome.latency_p50,
        "p99 ms": own.outcome.latency_p99,
    }
    if len(runs) > 1:
        other = runs[1]
        row |= {
            "peer rate": other.outcome.calls_per_second * case.responses,
            "peer cpu us": other.cpu,
            "peer p50 ms": other.outcome.latency_p50,
            "rate ratio": _ratio(own.outcome.calls_per_second, other.outcome.calls_per_second),
            "cpu ratio": _ratio(own.cpu, other.cpu),
            "p50 ratio": _ratio(own.outcome.latency_p50, other.outcome.latency_p50),
        }
    return row


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else 0.0


if __name__ == "__main__":
    main()
