"""A model in Python over HTTP: beside our own gRPC, and beside the real server over HTTP.

    python -m loadtest.scenarios.http --peer "COMMAND"

COMMAND starts the other server in the foreground and takes its usual options, which are added.
Without one, our own figures are printed alone. Each call is measured on all of them in turn. CPU
is what a server uses a call (or an event), all its processes; `front` is our first process alone,
in which the two protocols differ. `floor` is that of a server that answers with the body it gets.
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from loadtest.load import Load, run
from loadtest.process import Server, bare_http, peer, penstock
from loadtest.python_models import write_python_models
from loadtest.report import Row, arguments, median_rows, show
from penstock.protocol import grpc_service_pb2 as pb

_INFER = "/v2/models/identity/infer"
_STREAM = "/v2/models/count/generate_stream"
_RESPONSES = 500
_BINARY = {"64 B": 64, "64 KiB": 64 << 10, "1 MiB": 1 << 20}
_NUMBERS = {"16 numbers": 16, "10,000 numbers": 10_000}
_IN_FLIGHT = (1, 8, 32)


@dataclass(frozen=True, slots=True)
class _Case:
    """One kind of call over both protocols, so many of them in flight.

    What `responses` each is answered with is read as events, or as messages of a stream.
    """

    name: str
    path: str
    body: bytes
    message: pb.ModelInferRequest
    in_flight: int
    headers: dict[str, str] = field(default_factory=dict)
    responses: int = 1


@dataclass(frozen=True, slots=True)
class _Measured:
    """Answers a second, microseconds of CPU an answer, and milliseconds to it."""

    rate: float
    cpu: float
    front: float
    p50: float
    p99: float


def cases() -> Iterator[_Case]:
    """Every case, in the order of the table."""
    for label, size in _BINARY.items():
        values = np.arange(size // 4, dtype=np.float32)
        text, headers = _json(values, binary=True)
        for in_flight in _IN_FLIGHT:
            body = text + values.tobytes()
            yield _Case(f"binary {label}", _INFER, body, _floats(values), in_flight, headers)
    for label, count in _NUMBERS.items():
        eighths = np.arange(count, dtype=np.float32) / np.float32(8)
        text, headers = _json(eighths, binary=False)
        for in_flight in _IN_FLIGHT:
            yield _Case(f"JSON {label}", _INFER, text, _floats(eighths), in_flight, headers)
    count_message = pb.ModelInferRequest(model_name="count")
    count_message.inputs.add(name="COUNT", datatype="INT32", shape=[1])
    count_message.raw_input_contents.append(np.array([_RESPONSES], np.int32).tobytes())
    body = json.dumps({"COUNT": _RESPONSES}).encode()
    for in_flight in _IN_FLIGHT:
        yield _Case(f"{_RESPONSES} events", _STREAM, body, count_message, in_flight, {}, _RESPONSES)


def _json(values: np.ndarray, *, binary: bool) -> tuple[bytes, dict[str, str]]:
    """The JSON of a request, and the headers of its body."""
    tensor: dict[str, object] = {"name": "INPUT0", "datatype": "FP32", "shape": [len(values)]}
    output: dict[str, object] = {"name": "OUTPUT0"}
    if binary:
        tensor["parameters"] = {"binary_data_size": values.nbytes}
        output["parameters"] = {"binary_data": True}
    else:
        tensor["data"] = values.tolist()
    text = json.dumps({"inputs": [tensor], "outputs": [output]}, separators=(",", ":")).encode()
    return text, {"inference-header-content-length": str(len(text))} if binary else {}


def _floats(values: np.ndarray) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="identity")
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[len(values)])
    message.raw_input_contents.append(values.tobytes())
    return message


def check(server: Server, case: _Case) -> None:
    """Stop the run unless the server gives the right answer over HTTP."""
    url = f"http://127.0.0.1:{server.http_port}{case.path}"
    with urllib.request.urlopen(urllib.request.Request(url, case.body, case.headers)) as reply:
        answer, length = reply.read(), reply.headers.get("inference-header-content-length")
    if case.responses > 1:
        right = answer.count(b"data: {") == case.responses
    elif length is None:
        values = np.array(json.loads(answer)["outputs"][0]["data"], np.float32)
        right = values.tobytes() == case.message.raw_input_contents[0]
    else:
        right = answer[int(length) :] == case.message.raw_input_contents[0]
    if not right:
        raise SystemExit(f"{case.name}: a wrong answer from port {server.http_port}")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--peer", default="", help="command that starts the other server")
    parser.add_argument("--cases", default="", help="regular expression that a case must match")
    parser.add_argument("--serve", default="", help="further options of penstock serve")
    parser.add_argument("--python", default="", help="the Python that penstock is installed for")
    options = parser.parse_args()
    chosen = [case for case in cases() if re.search(options.cases, case.name)]
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as servers:
        directory = Path(temporary)
        models = directory / "models"
        write_python_models(models)
        python = {"python": options.python} if options.python else {}
        ours = servers.enter_context(penstock(models, *shlex.split(options.serve), **python))
        bare = servers.enter_context(bare_http())
        other = None
        if options.peer:
            other = servers.enter_context(peer(shlex.split(options.peer), models))
        for case in chosen:
            for server in filter(None, (ours, other)):
                check(server, case)

        def measure() -> list[Row]:
            return [_row(directory, ours, other, bare, case, options.seconds) for case in chosen]

        rows = median_rows(options.rounds, measure)
    show("HTTP: Penstock beside its own gRPC, and beside its peer", rows, options.json)


def _row(
    directory: Path,
    ours: Server,
    other: Server | None,
    bare: Server,
    case: _Case,
    seconds: float,
) -> Row:
    body, message = directory / "body", directory / "message"
    body.write_bytes(case.body)
    message.write_bytes(case.message.SerializeToString())
    own = _measured(ours, _http_load(ours, case, body, seconds))
    streamed = case.responses > 1
    grpc_load = Load(ours.target, str(message), case.in_flight, seconds, streamed)
    grpc_own = _measured(ours, grpc_load)
    row: dict[str, float | str] = {
        "case": case.name,
        "in flight": str(case.in_flight),
        "rate": own.rate,
        "cpu us": own.cpu,
        "front us": own.front,
        "p50 ms": own.p50,
        "p99 ms": own.p99,
        "grpc rate": grpc_own.rate,
        "grpc cpu us": grpc_own.cpu,
        "grpc front us": grpc_own.front,
        "of grpc cpu": own.cpu / grpc_own.cpu,
    }
    # Streams have no such floor: what is sent back are many responses.
    floor = "" if streamed else _measured(bare, _http_load(bare, case, body, seconds)).cpu
    row["floor us"] = floor
    if other is not None:
        theirs = _measured(other, _http_load(other, case, body, seconds))
        row |= {
            "peer rate": theirs.rate,
            "peer cpu us": theirs.cpu,
            "peer p50 ms": theirs.p50,
            "rate ratio": own.rate / theirs.rate,
            "cpu ratio": own.cpu / theirs.cpu,
        }
    return row


def _http_load(server: Server, case: _Case, body: Path, seconds: float) -> Load:
    return Load(
        f"127.0.0.1:{server.http_port}",
        str(body),
        case.in_flight,
        seconds,
        case.responses > 1,
        path=case.path,
        headers=case.headers,
    )


def _measured(server: Server, load: Load) -> _Measured:
    before, front = server.cpu_seconds(), server.own_cpu_seconds()
    outcome = run(load)
    each = 1e6 / max(outcome.all_messages, 1)
    return _Measured(
        outcome.messages / outcome.seconds,
        (server.cpu_seconds() - before) * each,
        (server.own_cpu_seconds() - front) * each,
        outcome.first_p50,
        outcome.first_p99,
    )


if __name__ == "__main__":
    main()
