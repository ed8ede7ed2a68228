"""What the server adds to generation: `tiny_llm` over gRPC against its engine alone."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from loadtest.load import Load, Outcome, run, run_python
from loadtest.process import Server, penstock
from loadtest.report import Row, arguments, median_rows, show
from penstock.core.tensor import Tensor
from penstock.demo import write_demo
from penstock.protocol import grpc_service_pb2 as pb

_PROMPT = "What is a list?"
_TOKENS = 128
_SAMPLING = {"max_tokens": _TOKENS, "temperature": 0, "ignore_eos": True}


def write_message(directory: Path) -> str:
    """A file with a request for a stream of tokens."""
    message = pb.ModelInferRequest(model_name="tiny_llm")
    inputs = {
        "text_input": Tensor.from_strings([_PROMPT]),
        "stream": Tensor.from_numpy(np.array([True])),
        "sampling_parameters": Tensor.from_strings([json.dumps(_SAMPLING)]),
    }
    for name, tensor in inputs.items():
        message.inputs.add(name=name, datatype=tensor.datatype.value, shape=tensor.shape)
        message.raw_input_contents.append(bytes(tensor.buffer))
    path = directory / "tokens.bin"
    path.write_bytes(message.SerializeToString())
    return str(path)


def engine_alone(
    python: str, engine: str, model: Path, streams: int, rounds: int
) -> dict[str, float]:
    """Tokens a second and time to first token of the engine in a process of its own."""
    command = [python, "-m", "loadtest.engines", engine, str(model), str(streams), str(rounds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    options = _options().parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_demo(directory / "models", llm=options.engine, report=lambda _: None)
        message = write_message(directory)
        server_arguments = ["--model-control-mode=explicit", "--load-model=tiny_llm"]
        if options.python != sys.executable:
            server_arguments.append(f"--backend-config={options.engine},python={options.python}")

        def measure() -> list[Row]:
            return [_row(directory, message, server_arguments, options, n) for n in (1, 8, 32)]

        rows = median_rows(options.rounds, measure)
    show(
        f"tiny_llm on {options.engine}: through the server against the engine alone",
        rows,
        options.json,
    )


def _options() -> argparse.ArgumentParser:
    parser = arguments(__doc__, timed=False)
    parser.add_argument("--engine", choices=("openvino_genai", "vllm"), default="openvino_genai")
    parser.add_argument("--calls", type=int, default=8, help="requests on each stream")
    parser.add_argument("--python", default=sys.executable, help="the engine's interpreter")
    return parser


def _row(
    directory: Path,
    message: str,
    server_arguments: list[str],
    options: argparse.Namespace,
    streams: int,
) -> Row:
    """One after the other: two engines at once would measure each other."""
    model = directory / "models" / "tiny_llm" / "1"
    alone = engine_alone(options.python, options.engine, model, streams, options.calls)
    with penstock(directory / "models", *server_arguments) as server:
        load = Load(server.target, message, streams, stream=True, rounds=options.calls)
        first = run_python(replace(load, rounds=max(1, options.calls // 4))).first_p50
        ours, cpu = _measured(server, load)
    rate = ours.calls * _TOKENS / ours.seconds
    return {
        "streams": str(streams),
        "tokens/s": rate,
        "engine tokens/s": alone["tokens_per_second"],
        "ratio": rate / alone["tokens_per_second"],
        "first ms": first,
        "engine first ms": alone["first_p50"],
        "cpu us/token": cpu,
        "engine cpu us/token": alone["cpu_per_token"],
    }


def _measured(server: Server, load: Load) -> tuple[Outcome, float]:
    """The outcome, and the CPU microseconds of server and engine a token."""
    before = server.cpu_seconds()
    outcome = run(load)
    return outcome, (server.cpu_seconds() - before) / (outcome.calls * _TOKENS) * 1e6


if __name__ == "__main__":
    main()
