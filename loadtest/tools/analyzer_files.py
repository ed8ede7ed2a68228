"""Models, files with inputs and certificates for the modes of perf_analyzer."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from loadtest.scenarios.streams import REPEAT

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
        "repeat": _repeated(0),
        # A response that comes before perf_analyzer has set back its counts of the request before,
        # which it does once the request is sent, ends it: too few had come for a last one.
        "periodic": _repeated(200),
    }
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def _repeated(delay: int) -> dict[str, Any]:
    """A request for three responses, of which the first comes after so many milliseconds."""
    given = {"IN": [1, 2, 3], "DELAY": [delay, 1, 1], "WAIT": [0]}
    tensors = {name: {"content": values, "shape": [len(values)]} for name, values in given.items()}
    return {"data": [tensors]}


def write_secure_model(folder: Path) -> Path:
    """The model of servers with TLS."""
    (folder / "identity" / "1").mkdir(parents=True)
    (folder / "identity" / "config.pbtxt").write_text(_IDENTITY.format(further=""))
    return folder


def write_certificates(folder: Path) -> None:
    """An authority, and certificates by it of a server, `localhost`, and of a client."""
    root = ["-subj", "/CN=root", "-keyout", "root.key", "-out", "root.pem"]
    _certify(folder, *root)
    for name in ("server", "client"):
        names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        names += ["-addext", "basicConstraints=critical,CA:FALSE", "-CA", "root.pem"]
        names += ["-CAkey", "root.key", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        _certify(folder, *names)


def _certify(folder: Path, *words: str) -> None:
    new = "openssl req -x509 -newkey rsa:2048 -nodes -days 2".split()
    subprocess.run([*new, *words], cwd=folder, check=True, capture_output=True)


def tls_options(folder: Path, *, mutual: bool) -> list[str]:
    """Options of a server with these certificates, for both of its ports."""
    found = []
    for port in ("grpc", "http"):
        found += [f"--{port}-use-ssl=true", f"--{port}-use-ssl-mutual={str(mutual).lower()}"]
        found += [f"--{port}-server-cert={folder}/server.pem"]
        found += [f"--{port}-server-key={folder}/server.key"]
        found += [f"--{port}-root-cert={folder}/root.pem"] if mutual else []
    return found
