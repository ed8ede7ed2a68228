"""Texts of one length to `minilm`: what the server takes of what the model could do without it.

    python -m loadtest.scenarios.encoders [--engines onnxruntime openvino] [--tokens 10 50 500]
        [--peer-python PYTHON]

The floor is the best offline loop: the same backend in a process of its own, with batches of texts
of one length that are ready, at the size that is best. In turns with it, for each length: over
gRPC, over HTTP by OpenAI's API, and with `--peer-python`, whose environment has
sentence-transformers, fastapi and uvicorn, the same weights behind a web server. CPU is
microseconds a text, of all processes of the server; `front` is that of its event loop, `client`
that of the load, which shares the cores. Texts of 500 tokens are cut to the 256 that the model
reads.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from loadtest.load import Load, run
from loadtest.offline import best
from loadtest.process import Server, embeddings_peer, penstock
from loadtest.report import Row, arguments, median_rows, show
from penstock.demo import write_demo
from penstock.protocol import grpc_service_pb2 as pb

_WORDS = "the quick brown fox jumps over the lazy dog near the quiet river bank and".split()
_SPECIAL = 2
"""Tokens that the tokenizer adds; each of the words is one."""
_LEAST = 3
"""How often each of the loops calls, at least: a limit of time would cut long calls off."""
_ONNXRUNTIME = "onnxruntime"


@dataclass(frozen=True, slots=True)
class _Case:
    """One engine and one length of texts, with the requests for it."""

    engine: str
    tokens: int
    message: str
    body: str


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--engines", nargs="+", default=[_ONNXRUNTIME, "openvino"])
    parser.add_argument("--tokens", type=int, nargs="+", default=[10, 50, 500])
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--peer-python", help="which has sentence-transformers")
    parser.add_argument("--peer-paths", type=Path, nargs="*", default=[], help="more packages")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        _write_models(folder, options.engines)
        server = stack.enter_context(penstock(folder / "models"))
        peer = None
        if options.peer_python:
            peer = stack.enter_context(embeddings_peer(options.peer_python, options.peer_paths))
        cases = [
            _case(folder, engine, tokens) for tokens in options.tokens for engine in options.engines
        ]

        def measure() -> list[Row]:
            return [
                _row(case, folder, server, peer, options.in_flight, options.seconds)
                for case in cases
            ]

        rows = median_rows(options.rounds, measure)
    show(f"minilm, {options.in_flight} texts in flight", rows, options.json)


def _write_models(folder: Path, engines: list[str]) -> None:
    """The demo's encoder, once for each engine, by the engine's name."""
    write_demo(folder / "demo", report=lambda _: None)
    for engine in engines:
        model = folder / "models" / engine
        shutil.copytree(folder / "demo" / "minilm", model)
        text = (model / "config.pbtxt").read_text().replace('"minilm"', f'"{engine}"')
        text = text.replace(f'backend: "{_ONNXRUNTIME}"', f'backend: "{engine}"')
        (model / "config.pbtxt").write_text(f'{text}\ndefault_model_filename: "model.onnx"\n')


def _case(folder: Path, engine: str, tokens: int) -> _Case:
    text = " ".join(_WORDS[at % len(_WORDS)] for at in range(tokens - _SPECIAL))
    message = pb.ModelInferRequest(model_name=engine)
    message.inputs.add(name="TEXT", datatype="BYTES", shape=[1, 1])
    message.raw_input_contents.append(len(text).to_bytes(4, "little") + text.encode())
    file = folder / f"{engine}-{tokens}.bin"
    file.write_bytes(message.SerializeToString())
    body = folder / f"{engine}-{tokens}.json"
    body.write_text(json.dumps({"model": engine, "input": text, "encoding_format": "base64"}))
    return _Case(engine, tokens, str(file), str(body))


def _row(
    case: _Case, folder: Path, server: Server, peer: Server | None, in_flight: int, seconds: float
) -> Row:
    offline = best(folder / "models" / case.engine, case.message, min(seconds, 2.0))
    row: dict[str, float | str] = {
        "engine": case.engine,
        "tokens": str(case.tokens),
        "offline/s": offline.rows_per_second,
        "batch": str(offline.size),
        "offline cpu us": offline.cpu_per_row,
    }
    rounds = max(_LEAST, round(seconds * offline.rows_per_second / in_flight))
    path = "/v1/embeddings"
    grpc = Load(server.target, case.message, in_flight, rounds=rounds)
    at = f"127.0.0.1:{server.http_port}"
    http = Load(at, case.body, in_flight, rounds=rounds, path=path)
    ours = {"gRPC": (server, grpc), "HTTP": (server, http)}
    for name, found in _measured(ours):
        row |= {f"{name}/s": found.rate, f"{name} of offline": found.rate / offline.rows_per_second}
        row |= {f"{name} cpu us": found.cpu, f"{name} front us": found.front}
        row |= {f"{name} client us": found.client}
    if peer is not None:
        load = Load(f"127.0.0.1:{peer.http_port}", case.body, in_flight, rounds=_LEAST, path=path)
        ((_, found),) = _measured({"peer": (peer, load)})
        row |= {"peer/s": found.rate, "peer cpu us": found.cpu}
        row |= {f"{name} of peer": float(row[f"{name}/s"]) / found.rate for name in ours}
    return row


@dataclass(frozen=True, slots=True)
class _Measured:
    """Texts a second; CPU microseconds of each: the server's, its event loop's, the client's."""

    rate: float
    cpu: float
    front: float
    client: float


def _measured(loads: dict[str, tuple[Server, Load]]) -> Iterator[tuple[str, _Measured]]:
    for name, (server, load) in loads.items():
        before = _spent(server)
        found = run(load)
        each = 1e6 / max(found.all_calls, 1)
        spent = (now - then for now, then in zip(_spent(server), before, strict=True))
        yield name, _Measured(found.calls_per_second, *(seconds * each for seconds in spent))


def _spent(server: Server) -> tuple[float, float, float]:
    """CPU seconds of the server, of its event loop, and of the load's processes that have ended."""
    ended = getrusage(RUSAGE_CHILDREN)
    return server.cpu_seconds(), server.loop_cpu_seconds(), ended.ru_utime + ended.ru_stime


if __name__ == "__main__":
    main()
