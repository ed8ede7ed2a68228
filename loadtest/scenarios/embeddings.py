"""Sentences in, embeddings out: OpenAI's API beside the binary tensors of HTTP and gRPC.

    python -m loadtest.scenarios.embeddings [--in-flight 1 8 32] [--python PYTHON]

The demo's `minilm`, whose batches are dynamic. Calls of one sentence are measured on each way in
turn. CPU is microseconds a call, of all processes of the server; `front` is its first alone.
`of HTTP` and `of gRPC` are the rate against binary tensors over these.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.load import Load, run
from loadtest.process import Server, penstock
from loadtest.report import Row, arguments, median_rows, show
from penstock.demo import write_demo
from penstock.protocol import grpc_service_pb2 as pb

_SENTENCE = "Water runs through the pipe to the wheel."
_MODEL = "minilm"
_GRPC, _HTTP = "gRPC, binary", "HTTP, binary"


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to ask for the embedding of a sentence."""

    name: str
    body: bytes
    path: str = ""  # over HTTP; over gRPC none
    headers: dict[str, str] = field(default_factory=dict)


def ways() -> Iterator[_Way]:
    """Each way; the first two are what the others are compared with."""
    value = _SENTENCE.encode()
    element = len(value).to_bytes(4, "little") + value
    message = pb.ModelInferRequest(model_name=_MODEL)
    message.inputs.add(name="TEXT", datatype="BYTES", shape=[1, 1])
    message.raw_input_contents.append(element)
    yield _Way(_GRPC, message.SerializeToString())
    tensor: dict[str, object] = {"name": "TEXT", "datatype": "BYTES", "shape": [1, 1]}
    tensor["parameters"] = {"binary_data_size": len(element)}
    output = {"name": "EMBEDDING", "parameters": {"binary_data": True}}
    text = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    length = {"inference-header-content-length": str(len(text))}
    yield _Way(_HTTP, text + element, f"/v2/models/{_MODEL}/infer", length)
    for encoding in ("float", "base64"):
        asked = {"model": _MODEL, "input": _SENTENCE, "encoding_format": encoding}
        body = json.dumps(asked).encode()
        yield _Way(f"/v1/embeddings, {encoding}", body, "/v1/embeddings")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--python", default=sys.executable, help="which has the server")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        directory = Path(temporary)
        write_demo(directory / "demo", report=lambda _: None)
        shutil.copytree(directory / "demo" / _MODEL, directory / "models" / _MODEL)
        server = stack.enter_context(penstock(directory / "models", python=options.python))

        def measure() -> list[Row]:
            return [
                row
                for in_flight in options.in_flight
                for row in _rows(server, in_flight, options.seconds, directory)
            ]

        rows = median_rows(options.rounds, measure)
    show(f"embeddings of {_MODEL}", rows, options.json)


def _rows(server: Server, in_flight: int, seconds: float, directory: Path) -> Iterator[Row]:
    rates: dict[str, float] = {}
    for way in ways():
        file = directory / "request.bin"
        file.write_bytes(way.body)
        target = f"127.0.0.1:{server.http_port}" if way.path else server.target
        before, front = server.cpu_seconds(), server.own_cpu_seconds()
        load = Load(target, str(file), in_flight, seconds, path=way.path, headers=way.headers)
        found = run(load)
        each = 1e6 / max(found.all_messages, 1)
        rate = rates[way.name] = found.messages / found.seconds
        yield {
            "way": way.name,
            "in flight": str(in_flight),
            "rate": rate,
            "of gRPC": rate / rates[_GRPC],
            "of HTTP": rate / rates[_HTTP] if _HTTP in rates else "",
            "p50 ms": found.first_p50,
            "p99 ms": found.first_p99,
            "cpu us": (server.cpu_seconds() - before) * each,
            "front us": (server.own_cpu_seconds() - front) * each,
        }


if __name__ == "__main__":
    main()
