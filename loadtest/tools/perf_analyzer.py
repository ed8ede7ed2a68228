"""Triton's perf_analyzer against this server in all modes that are for it, with its own tables.

    python -m loadtest.tools.perf_analyzer [MODE ...]

Not among them are its service kinds for other servers (tfserving, torchserve) and for a server
inside of its own process (triton_c_api), and CUDA memory, which wants a GPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtest.process import Server, penstock
from loadtest.report import Row, show
from loadtest.scenarios.streams import REPEAT
from loadtest.tools.programs import program
from loadtest.tools.report import ToolError

_IDENTITY = """\
backend: "identity"
max_batch_size: 8
{further}
input [ {{ name: "IN" data_type: TYPE_FP32 dims: [ 4 ] }} ]
output [ {{ name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] }} ]
"""
_STEP = """\
{{ model_name: "{model}" model_version: -1
   input_map {{ key: "IN" value: "{given}" }} output_map {{ key: "OUT" value: "{made}" }} }}"""
_ENSEMBLE = """\
platform: "ensemble"
max_batch_size: 8
input [ {{ name: "IN" data_type: TYPE_FP32 dims: [ 4 ] }} ]
output [ {{ name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] }} ]
ensemble_scheduling {{ step [ {steps} ] }}
"""
_BLS = """\
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1, 4 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1, 4 ] } ]
"""
_BLS_CODE = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._ask(request) for request in requests]

    def _ask(self, request):
        asked = pb_utils.InferenceRequest(
            model_name="second", requested_output_names=["OUT"], inputs=request.inputs()
        )
        return pb_utils.InferenceResponse(asked.exec().output_tensors())
"""
_EMBEDDER = """\
backend: "python"
max_batch_size: 8
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "EMBEDDING" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""
_EMBEDDER_CODE = """\
import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._embed(request) for request in requests]

    def _embed(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        vectors = numpy.ones((len(texts), 2), numpy.float32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("EMBEDDING", vectors)])
"""
PROFILE = "profile.json"
"""The file in the folder of places that modes export times of requests into."""
_WINDOW = ["--measurement-interval={window}", "--max-trials=6", "--stability-percentage=99999"]


def write_models(folder: Path) -> Path:
    """Models that batch, have sequences, stream, are an ensemble, and call another model."""
    steps = [
        _STEP.format(model="identity", given="IN", made="BETWEEN"),
        _STEP.format(model="second", given="BETWEEN", made="OUT"),
    ]
    sequences = "sequence_batching { max_sequence_idle_microseconds: 5000000 }"
    batches = "dynamic_batching { max_queue_delay_microseconds: 100 }"
    configs = {
        "identity": _IDENTITY.format(further=batches),
        "second": _IDENTITY.format(further=""),
        "sequence": _IDENTITY.format(further=sequences),
        "ensemble": _ENSEMBLE.format(steps=", ".join(steps)),
        "repeat": REPEAT,
        "bls": _BLS,
        "embedder": _EMBEDDER,
    }
    for name, config in configs.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
    for name, code in (("bls", _BLS_CODE), ("embedder", _EMBEDDER_CODE)):
        (folder / name / "1" / "model.py").write_text(code)
    return folder


def write_inputs(folder: Path) -> None:
    """The files that modes name."""
    (folder / "intervals").write_text("2000\n5000\n20000\n")
    rows = [[float(row + column) for column in range(4)] for row in range(3)]
    data = [{"IN": row} for row in rows]
    files = {
        "data": {"data": data},
        "streams": {"data": [data, data[:2]]},
        "shaped": {"data": [{"IN": {"content": row, "shape": [4]}} for row in rows]},
        "expected": {"data": data, "validation_data": [{"OUT": row} for row in rows]},
        "openai": {"data": [{"payload": [{"model": "embedder", "input": "a text"}]}]},
        "wrong": {"data": data, "validation_data": [{"OUT": [9.0] * 4} for _ in rows]},
        "repeat": {
            "data": [
                {
                    "IN": {"content": [1, 2, 3], "shape": [3]},
                    "DELAY": {"content": [0, 1, 1], "shape": [3]},
                    "WAIT": {"content": [0], "shape": [1]},
                }
            ]
        },
    }
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


@dataclass(frozen=True, slots=True)
class Mode:
    """Arguments; `{grpc}`, `{http}`, `{metrics}`, `{folder}`, `{tls}` stand for places.

    Without a `table` there is only an exported profile.
    """

    arguments: str
    model: str = "identity"
    rows: tuple[str, ...] = ()  # of the contract
    table: bool = True


_GRPC, _HTTP = "-i grpc -u {grpc}", "-i http -u {http}"
_TLS = "-i grpc -u {tls} --ssl-grpc-use-ssl --ssl-grpc-root-certifications-file={folder}/root.pem"
MODES: Mapping[str, Mode] = {
    "intervals": Mode(f"{_GRPC} --request-intervals={{folder}}/intervals", rows=("PA-07",)),
    "poisson": Mode(
        f"{_GRPC} --request-rate-range=80 --request-distribution=poisson", rows=("PA-06",)
    ),
    "periodic concurrency": Mode(
        f"{_GRPC} --async --streaming --periodic-concurrency-range=1:3:1 --request-period=3"
        " --input-data={folder}/repeat.json --profile-export-file={folder}/profile.json",
        "repeat",
        ("PA-07",),
        table=False,
    ),
    "decoupled": Mode(
        f"{_GRPC} --async --streaming --input-data={{folder}}/repeat.json"
        " --profile-export-file={folder}/profile.json",
        "repeat",
        ("PA-21",),
    ),
    "request count": Mode(f"{_GRPC} --concurrency-range=2 --request-count=40", rows=("PA-10",)),
    "count windows": Mode(
        f"{_HTTP} --measurement-mode=count_windows --measurement-request-count=30", rows=("PA-09",)
    ),
    "percentile": Mode(f"{_GRPC} --percentile=95 --verbose-csv", rows=("PA-09", "PA-19")),
    "latency threshold": Mode(
        f"{_GRPC} --concurrency-range=1:2:1 -l 2000 --max-threads=2", rows=("PA-11",)
    ),
    "binary search": Mode(
        f"{_GRPC} --concurrency-range=1:3:1 -l 2000 --binary-search", rows=("PA-11",)
    ),
    "sequences": Mode(
        f"{_GRPC} --concurrency-range=2 --sequence-length=5 --sequence-id-range=100:200",
        "sequence",
        ("PA-12",),
    ),
    "sequences in turns at a rate": Mode(
        f"{_GRPC} --async --streaming --request-rate-range=60 --num-of-sequences=2"
        " --sequence-length=4 --sequence-length-variation=50 --serial-sequences",
        "sequence",
        ("PA-12",),
    ),
    "sequences of a file": Mode(
        f"{_HTTP} --input-data={{folder}}/streams.json", "sequence", ("PA-12",)
    ),
    "data of a file": Mode(f"{_GRPC} --input-data={{folder}}/shaped.json -b 3", rows=("PA-02",)),
    "zeros": Mode(f"{_HTTP} --input-data=zero", rows=("PA-02",)),
    "validation": Mode(f"{_GRPC} --input-data={{folder}}/expected.json", rows=("PA-24",)),
    "metrics": Mode(
        f"{_GRPC} --verbose-csv --collect-metrics --metrics-url={{metrics}} --metrics-interval=100",
        rows=("PA-17",),
    ),
    "traces": Mode(
        f"{_GRPC} --trace-level=TIMESTAMPS --trace-rate=100 --trace-count=1 --log-frequency=0",
        rows=("PA-18",),
    ),
    "ensemble": Mode(f"{_GRPC}", "ensemble", ("PA-23",)),
    "composing models": Mode(f"{_GRPC} --bls-composing-models=second", "bls", rows=("PA-22",)),
    "OpenAI's embeddings": Mode(
        "--service-kind=openai --endpoint=v1/embeddings -i http -u {http} --async"
        " --input-data={folder}/openai.json",
        "embedder",
        ("PA-03",),
    ),
    "deflate": Mode(f"{_GRPC} --grpc-compression-algorithm=deflate", rows=("PA-16",)),
    "TLS": Mode(_TLS, rows=("PA-16",)),
    "JSON": Mode(
        f"{_HTTP} --input-tensor-format=json --output-tensor-format=json -b 2", rows=("PA-14",)
    ),
}


@dataclass(frozen=True, slots=True)
class Places:
    """Where the servers are, and where files lie."""

    grpc: str
    http: str
    metrics: str
    tls: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Report:
    """What perf_analyzer ended with, printed, and wrote into its table."""

    status: int
    printed: str
    table: Sequence[Mapping[str, str]]


def run_mode(mode: Mode, places: Places, window: int = 200) -> Report:
    """Run perf_analyzer in a mode, with windows of so many milliseconds."""
    return run(mode.model, mode.arguments, places, window)


def run(model: str, arguments: str, places: Places, window: int = 200) -> Report:
    """Run perf_analyzer with these arguments, in which places are named."""
    table = places.folder / "table.csv"
    for old in (table, places.folder / PROFILE):  # which it does not overwrite
        old.unlink(missing_ok=True)
    binary = program("perf_analyzer")
    found = {"grpc": places.grpc, "http": places.http, "metrics": places.metrics}
    found |= {"tls": places.tls, "folder": str(places.folder), "window": str(window)}
    words = [word.format(**found) for word in [*arguments.split(), *_WINDOW]]
    libraries = f"{Path(binary).resolve().parent / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    done = subprocess.run(
        [binary, "-m", model, *words, "-f", str(table)],
        env={**os.environ, "LD_LIBRARY_PATH": libraries},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    rows = list(csv.DictReader(table.read_text().splitlines())) if table.exists() else []
    return Report(done.returncode, done.stdout + done.stderr, rows)


def write_certificates(folder: Path) -> list[str]:
    """An authority and a server's certificate by it; the server's options that name them."""
    new = "openssl req -x509 -newkey rsa:2048 -nodes -days 2".split()
    root = ["-subj", "/CN=root", "-keyout", "root.key", "-out", "root.pem"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    names += ["-addext", "basicConstraints=critical,CA:FALSE", "-CA", "root.pem"]
    names += ["-CAkey", "root.key", "-keyout", "server.key", "-out", "server.pem"]
    for words in (root, names):
        subprocess.run([*new, *words], cwd=folder, check=True, capture_output=True)
    files = [f"--grpc-server-cert={folder}/server.pem", f"--grpc-server-key={folder}/server.key"]
    return ["--grpc-use-ssl=true", *files]


@contextmanager
def _places(folder: Path) -> Iterator[Places]:
    models = write_models(folder / "models")
    write_inputs(folder)
    options = write_certificates(folder)
    trace = f"--trace-config=triton,file={folder / 'trace.json'}"
    with (
        penstock(models, "--allow-client-shm=true", trace) as plain,
        penstock(models, *options) as secure,
    ):
        yield places(plain, f"localhost:{secure.grpc_port}", folder)


def places(server: Server, tls: str, folder: Path) -> Places:
    """The places of a server of ours, and of one with TLS."""
    http = f"127.0.0.1:{server.http_port}"
    metrics = f"http://127.0.0.1:{server.metrics_port}/metrics"
    return Places(server.target, http, metrics, tls, folder)


def main() -> None:
    """Run the modes that are named, or all, and print perf_analyzer's figures."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.tools.perf_analyzer")
    parser.add_argument("modes", nargs="*", metavar="MODE", help=f"of: {', '.join(MODES)}")
    parser.add_argument("--window", type=int, default=1000, help="milliseconds of a measurement")
    parser.add_argument("--verbose", action="store_true", help="print its reports, too")
    parser.add_argument("--json", type=Path, help="where to write the table")
    chosen = parser.parse_args()
    if unknown := set(chosen.modes) - set(MODES):
        parser.error(f"there is no mode '{sorted(unknown)[0]}'")
    failed = []
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, _places(Path(folder)) as found:
        for name in chosen.modes or MODES:
            try:
                report = run_mode(MODES[name], found, chosen.window)
            except ToolError as error:
                sys.exit(str(error))
            if chosen.verbose or report.status:
                print(report.printed)
            failed += [name] if report.status else []
            rows += _rows(name, report)
    show("perf_analyzer; times in ms", rows, chosen.json)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _rows(name: str, report: Report) -> Iterator[Row]:
    columns = {"a second": "Inferences/Second", "queue": "Server Queue"}
    columns |= {"infer": "Server Compute Infer", "p50": "p50 latency", "p99": "p99 latency"}
    for row in report.table or [{}]:
        first = next(iter(row.items()), ("", ""))
        times = {
            title: float(row[column]) / (1 if title == "a second" else 1e3)
            if row.get(column)
            else "-"
            for title, column in columns.items()
        }
        yield {"mode": name, "load": " ".join(first), **times, "status": str(report.status)}


if __name__ == "__main__":
    main()
