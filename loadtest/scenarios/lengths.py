"""Encoder requests of mixed lengths: a budget of elements and length buckets against rows alone.

The same graph three times: padded batches of rows in order of arrival; padded batches within a
budget and of one length bucket; and every request alone. Rows of one length cost what their tokens
cost, so CPU time a request says how much was spent on padding.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from loadtest.load import Load, Outcome
from loadtest.process import Server, penstock
from loadtest.report import Row, arguments, median_rows, show
from loadtest.scenarios.unary import measured
from penstock.demo import write_demo
from penstock.protocol import grpc_service_pb2 as pb

_CONFIG = """
backend: "onnxruntime"
max_batch_size: 32
input [
  { name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] allow_ragged_batch: true },
  { name: "attention_mask" data_type: TYPE_INT64 dims: [ -1 ] allow_ragged_batch: true }
]
output [ { name: "EMBEDDING" data_type: TYPE_FP32 dims: [ 384 ] } ]
"""
_PADDED = """
dynamic_batching { }
parameters { key: "penstock.padding" value: { string_value: "input_ids=0,attention_mask=0" } }
"""
_BUDGET = """
parameters { key: "penstock.max_batch_elements" value: { string_value: "1024" } }
parameters { key: "penstock.length_buckets" value: { string_value: "8,16,32,64,128,256" } }
"""
_ALONE = _CONFIG.replace(" allow_ragged_batch: true", "")
_MODELS = {"alone": _ALONE, "rows": _CONFIG + _PADDED, "budget": _CONFIG + _PADDED + _BUDGET}
_REQUESTS = 256


def main() -> None:
    options = arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_demo(directory / "demo", report=lambda _: None)
        graph = directory / "demo" / "minilm" / "1" / "model.onnx"
        _write_models(directory / "models", graph)
        lengths = _lengths()
        messages = {model: _messages(directory, model, lengths) for model in _MODELS}
        with penstock(directory / "models") as server:

            def measure() -> list[Row]:
                return [_row(server, messages, n, options.seconds) for n in (4, 16, 32, 64)]

            rows = median_rows(options.rounds, measure)
    title = f"minilm, {min(lengths)} to {max(lengths)} tokens, {np.mean(lengths):.0f} on average"
    show(f"{title}: element budget and buckets against rows", rows, options.json)


def _write_models(repository: Path, graph: Path) -> None:
    for name, config in _MODELS.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "1" / "model.onnx").symlink_to(graph)
        (repository / name / "config.pbtxt").write_text(config)


def _lengths() -> list[int]:
    """Most texts are short and some are long: lognormal, from 4 to 256 tokens."""
    drawn = np.random.default_rng(5).lognormal(np.log(24), 0.9, _REQUESTS)
    return [int(length) for length in drawn.clip(4, 256)]


def _messages(directory: Path, model: str, lengths: list[int]) -> list[str]:
    files = []
    for number, length in enumerate(lengths):
        message = pb.ModelInferRequest(model_name=model)
        for name, values in (("input_ids", np.arange(length) + 1000), ("attention_mask", None)):
            message.inputs.add(name=name, datatype="INT64", shape=[1, length])
            array = np.ones(length, np.int64) if values is None else values
            message.raw_input_contents.append(array.astype(np.int64).tobytes())
        path = directory / f"{model}-{number}.bin"
        path.write_bytes(message.SerializeToString())
        files.append(str(path))
    return files


def _row(server: Server, messages: dict[str, list[str]], in_flight: int, seconds: float) -> Row:
    found: dict[str, tuple[Outcome, float]] = {}
    for model, (first, *further) in messages.items():
        load = Load(server.target, first, in_flight, seconds, further=tuple(further))
        found[model] = measured(server, load)
    rates = {model: outcome.calls_per_second for model, (outcome, _) in found.items()}
    row: dict[str, float | str] = {"in flight": str(in_flight)}
    for model, (outcome, cpu) in found.items():
        row |= {f"{model}/s": rates[model], f"{model} p99 ms": outcome.latency_p99}
        row[f"{model} cpu us"] = cpu
    return row | {
        "budget/rows": rates["budget"] / rates["rows"],
        "cpu rows/budget": found["rows"][1] / found["budget"][1],
    }


if __name__ == "__main__":
    main()
