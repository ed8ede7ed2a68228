"""What dynamic batching is worth: `minilm` with its batcher against the same model without.

The floor is the same model without a server, fed with batches of the best size.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from loadtest.load import Load
from loadtest.offline import Offline, best
from loadtest.process import Server, penstock
from loadtest.report import Row, arguments, median_rows, show
from loadtest.scenarios.unary import measured
from penstock.core.tensor import Tensor
from penstock.demo import write_demo
from penstock.protocol import grpc_service_pb2 as pb
from penstock.scheduling.batching.gathering import GATHER

_SENTENCE = "The quick brown fox jumps over the lazy dog near the quiet river bank"


def main() -> None:
    options = arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_demo(directory / "models", report=lambda _: None)
        _without_batching(directory / "models" / "minilm")
        messages = {name: _message(directory, name) for name in ("minilm", "minilm_single")}
        loads = (
            "--model-control-mode=explicit",
            "--load-model=minilm",
            "--load-model=minilm_single",
        )
        with penstock(directory / "models", *loads) as server:

            def measure() -> list[Row]:
                offline = best(directory / "models" / "minilm", messages["minilm"], 1.0)
                return [
                    _row(server, messages, n, options.seconds, offline)
                    for n in (1, 2, 4, 8, 16, 32)
                ]

            rows = median_rows(options.rounds, measure)
    show("minilm, 16 tokens a sentence: dynamic batching against batch size 1", rows, options.json)


def _without_batching(model: Path) -> None:
    """A second model over the same files that executes every request alone."""
    single = model.with_name("minilm_single")
    (single / "1").mkdir(parents=True)
    for path in (model / "1").iterdir():
        (single / "1" / path.name).symlink_to(path)
    lines = (model / "config.pbtxt").read_text().replace('"minilm"', '"minilm_single"').splitlines()
    kept = [line for line in lines if "dynamic_batching" not in line and GATHER not in line]
    (single / "config.pbtxt").write_text("\n".join(kept))


def _message(directory: Path, model: str) -> str:
    tensor = Tensor.from_strings([_SENTENCE], shape=(1, 1))
    message = pb.ModelInferRequest(model_name=model)
    message.inputs.add(name="TEXT", datatype="BYTES", shape=tensor.shape)
    message.raw_input_contents.append(bytes(tensor.buffer))
    path = directory / f"{model}.bin"
    path.write_bytes(message.SerializeToString())
    return str(path)


def _row(
    server: Server, messages: dict[str, str], in_flight: int, seconds: float, offline: Offline
) -> Row:
    single, single_cpu = measured(
        server, Load(server.target, messages["minilm_single"], in_flight, seconds)
    )
    batched, cpu = measured(server, Load(server.target, messages["minilm"], in_flight, seconds))
    return {
        "in flight": str(in_flight),
        "sentences/s": batched.calls_per_second,
        "single/s": single.calls_per_second,
        "ratio": batched.calls_per_second / single.calls_per_second,
        "offline/s": offline.rows_per_second,
        "of offline": batched.calls_per_second / offline.rows_per_second,
        "p99 ms": batched.latency_p99,
        "single p99 ms": single.latency_p99,
        "cpu us": cpu,
        "single cpu us": single_cpu,
        "offline cpu us": offline.cpu_per_row,
    }


if __name__ == "__main__":
    main()
