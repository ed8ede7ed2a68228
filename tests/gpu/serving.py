"""A server of the tests' models, and its stock client."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import np_to_triton_dtype

from harness.serving import Served, wait_until

PATIENCE = 300.0
"""Seconds in which a process imports PyTorch, and CUDA wakes up."""
FLAGS = ("--model-control-mode=explicit", "--allow-client-shm=true", "--metrics-interval-ms=100")
_MODELS = Path(__file__).with_name("make_models.py")

Array = np.ndarray[Any, Any]


def write_models(repository: Path, *arguments: str) -> None:
    """Write the networks of `make_models.py`; raises `AssertionError` with what it says."""
    command = [sys.executable, str(_MODELS), str(repository), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


class GpuServer:
    """A server whose models are loaded by the tests that need them, and stay."""

    def __init__(
        self, served: Served, repository: Path, client: grpcclient.InferenceServerClient
    ) -> None:
        self.served = served
        self.repository = repository
        self.client = client

    def load(self, *models: str) -> None:
        """Load those that are not there."""
        for model in models:
            if not self.client.is_model_ready(model):
                self.client.load_model(model, client_timeout=PATIENCE)

    def unload(self, model: str) -> None:
        """Unload a model; returns when it has gone."""
        self.client.unload_model(model, client_timeout=PATIENCE)
        wait_until(lambda: self._state(model) == "UNAVAILABLE", PATIENCE)

    def _state(self, model: str) -> str:
        index = self.client.get_model_repository_index().models
        return next((str(one.state) for one in index if one.name == model), "")

    def ask(self, model: str, x: Array) -> grpcclient.InferResult:
        """The model's answer to `INPUT__0`."""
        tensor = grpcclient.InferInput("INPUT__0", list(x.shape), np_to_triton_dtype(x.dtype))
        tensor.set_data_from_numpy(x)
        return self.client.infer(model, [tensor], client_timeout=PATIENCE)

    def answer(self, model: str, x: Array) -> Array:
        """The model's `OUTPUT__0`."""
        array: Array = self.ask(model, x).as_numpy("OUTPUT__0")
        return array

    def executions(self, model: str) -> tuple[int, int]:
        """How many rows the model has answered, and in how many batches."""
        [found] = self.client.get_inference_statistics(model).model_stats
        return int(found.inference_count), int(found.execution_count)

    def expected(self) -> tuple[Array, Array]:
        """Five rows, and what the network answers to them on the CPU."""
        with np.load(self.repository / "expected.npz") as arrays:
            return arrays["x"], arrays["y"]

    def metric(self, name: str, **labels: str) -> float:
        """A value on the page of metrics; raises `KeyError` where it is not there."""
        with urllib.request.urlopen(self.served.metrics, timeout=PATIENCE) as page:
            lines = page.read().decode().splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        for line in lines:
            if line.startswith((f"{name}{{", f"{name} ")) and all(one in line for one in wanted):
                return float(line.rpartition(" ")[2])
        raise KeyError(name)

    def post(self, path: str, body: Mapping[str, Any]) -> bytes:
        """The answer to a POST of JSON to the HTTP port."""
        url, data = f"http://{self.served.http}/{path}", json.dumps(body).encode()
        with urllib.request.urlopen(url, data, timeout=PATIENCE) as answer:
            content: bytes = answer.read()
        return content
