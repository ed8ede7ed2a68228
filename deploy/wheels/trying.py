"""Tries a wheel: installs it in an environment of its own, serves from it and calls the server."""

from __future__ import annotations

import json
import shutil
import signal
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np

from deploy.observability.programs import port, program
from deploy.wheels.pythons import UV, Unpacked, emulator, run
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol import grpc_service_pb2_grpc as services

_CONFIG = """
backend: "identity"
input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1] }]
"""
_PATIENCE = 60.0  # seconds for an answer of an emulated server
_START = 300.0  # seconds, since an emulated server takes one or two minutes
_VALUES = [1.0, 2.5, -3.0]


class TriedError(Exception):
    """What is installed does not do what it should."""


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with nothing but wheels of ours and what they need."""

    python: Sequence[str | Path]
    variables: Mapping[str, str] = field(default_factory=dict)

    def says(self, *arguments: str) -> str:
        """What Python prints that is given these arguments."""
        return run(*self.python, *arguments, variables=self.variables)


def install(python: Path, folder: Path, wheels: Sequence[Path]) -> Installed:
    """Install wheels for this machine."""
    shutil.rmtree(folder, ignore_errors=True)
    run(UV, "venv", "--quiet", "--python", python, folder)
    own = folder / "bin/python"
    run(UV, "pip", "install", "--quiet", "--only-binary", ":all:", "--python", own, *wheels)
    return Installed([own])


def install_foreign(unpacked: Unpacked, folder: Path, wheels: Sequence[Path]) -> Installed:
    """Install wheels for another processor, to be emulated. Raises `NotHereError`."""
    emulating: list[str | Path] = [emulator(unpacked.processor), "-L", unpacked.folder]
    shutil.rmtree(folder, ignore_errors=True)
    target = ["--python-platform", f"{unpacked.processor}-manylinux_2_28"]
    target += ["--python-version", unpacked.version, "--target", str(folder)]
    run(UV, "pip", "install", "--quiet", "--only-binary", ":all:", *target, *wheels)
    variables = {"PYTHONPATH": str(folder), "PYTHONHOME": str(unpacked.folder / "usr")}
    return Installed([*emulating, unpacked.python], variables)


def try_out(installed: Installed, folder: Path, compiled: bool) -> None:
    """Serve a model and call it, over gRPC, HTTP and with the client package.

    Raises `TriedError` where an answer is not what it should be, or where modules are compiled that
    should not be, or not compiled that should.
    """
    _check_compiled(installed, compiled)
    model = folder / "models/identity"
    (model / "1").mkdir(parents=True, exist_ok=True)
    (model / "config.pbtxt").write_text(_CONFIG)
    ports = {name: port("", 0) for name in ("grpc", "http", "metrics")}
    command = [*installed.python, "-m", "penstock", "serve"]
    command.append(f"--model-repository={model.parent}")
    command += [f"--{name}-port={number}" for name, number in ports.items()]
    with program("server", command, folder, installed.variables) as server:
        http, rpc = f"127.0.0.1:{ports['http']}", f"127.0.0.1:{ports['grpc']}"
        server.wait_ready(f"http://{http}/v2/health/ready", _START)
        _check("HTTP", _over_http(http))
        _check("gRPC", _over_grpc(rpc))
        asked = ["infer", "identity", f"INPUT0={json.dumps(_VALUES)}", "--json", "-u", rpc]
        said = json.loads(installed.says("-m", "penstock", *asked))
        _check("the client package", said["outputs"]["OUTPUT0"]["data"])
        server.process.send_signal(signal.SIGTERM)
        if status := server.process.wait(_PATIENCE):
            raise TriedError(f"the server ended with status {status}:\n{server.last_lines()}")


def _check_compiled(installed: Installed, compiled: bool) -> None:
    for module in ("penstock.rpc.servicer", "penstock_client.reading.events"):
        file = installed.says("-c", f"import {module} as module; print(module.__file__)")
        if file.endswith(".so") != compiled:
            raise TriedError(f"{module} is {file}")


def _over_http(address: str) -> Sequence[float]:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [len(_VALUES)], "data": _VALUES}
    body = json.dumps({"inputs": [tensor]}).encode()
    url = f"http://{address}/v2/models/identity/infer"
    with urllib.request.urlopen(url, body, timeout=_PATIENCE) as answer:
        told: Sequence[float] = json.load(answer)["outputs"][0]["data"]
    return told


def _over_grpc(address: str) -> Sequence[float]:
    message = pb.ModelInferRequest(model_name="identity")
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[len(_VALUES)])
    message.raw_input_contents.append(np.array(_VALUES, np.float32).tobytes())
    with grpc.insecure_channel(address) as channel:
        reply = services.GRPCInferenceServiceStub(channel).ModelInfer(message, timeout=_PATIENCE)
    told: Sequence[float] = np.frombuffer(reply.raw_output_contents[0], np.float32).tolist()
    return told


def _check(way: str, told: Sequence[float]) -> None:
    if list(told) != _VALUES:
        raise TriedError(f"{way} answered {told}")
