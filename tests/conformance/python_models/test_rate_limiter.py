"""Models that take turns with one resource, as a server with a rate limiter gives them."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from conformance.python_models.client import Client
from conformance.python_models.repository import PythonModel
from harness.serving import Served, wait_until

ARGUMENTS = ("--rate-limit=execution_count",)

_IN_TURN = """
    import os, time
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def initialize(self, args):
            self.name = args["model_name"]
            self.directory = os.path.dirname(args["model_repository"])

        def execute(self, requests):
            with open(os.path.join(self.directory, "turns"), "a") as turns:
                turns.write(self.name + " ")
            while not os.path.exists(os.path.join(self.directory, "gate")):
                time.sleep(0.002)
            x = [pb_utils.get_input_tensor_by_name(request, "X") for request in requests]
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", y.as_numpy())]) for y in x]
"""
"""Writes down its turn, which lasts until there is the file `gate`."""


_CONFIG = """
    backend: "python"
    input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
    output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU rate_limiter {
      resources [ { name: "R" global: true count: 1 } ] priority: %d
    } } ]
"""


def _model(priority: int) -> PythonModel:
    return PythonModel(_IN_TURN, config=None, files={"../config.pbtxt": _CONFIG % priority})


MODELS = {"first": _model(1), "light": _model(1), "heavy": _model(2)}
_X = {"X": np.zeros(1, np.float32)}


@pytest.mark.contract("I-14", "I-15", "I-17")
def test_models_that_wait_take_turns_by_their_priorities(
    client: Client, server: Served, repository: Path
) -> None:
    orders = [client.begin("first", _X)]
    wait_until((repository / "turns").exists)
    orders += [client.begin("heavy", _X) for _ in range(2)]
    wait_until(lambda: _pending(server) == 2)
    orders += [client.begin("light", _X) for _ in range(4)]
    wait_until(lambda: _pending(server) == 6)
    (repository / "gate").touch()
    for order in orders:
        order.result()
    turns = (repository / "turns").read_text().split()
    assert turns == ["first", "light", "light", "heavy", "light", "light", "heavy"]


def _pending(server: Served) -> int:
    """How many requests wait for an instance, over all models."""
    page = urllib.request.urlopen(server.metrics, timeout=60).read().decode()
    found = re.findall(r"^nv_inference_pending_request_count{[^}]*} (\d+)", page, re.MULTILINE)
    return sum(int(count) for count in found)
