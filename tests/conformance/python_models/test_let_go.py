"""Memory of inputs is free again when the model lets go of it, not when it is asked again."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from conformance.python_models.client import Client
from conformance.python_models.repository import PythonModel
from harness.serving import Served, wait_until

# Answers at once, and keeps the input until there is a file `go`.
_THREAD = """
    import os
    import threading
    import time

    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.go = os.path.join(args["model_repository"], "go")

        def execute(self, requests):
            return [self.respond(request.inputs()[0].as_numpy()) for request in requests]

        def respond(self, x):
            threading.Thread(target=self.hold, args=(x,)).start()
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x[:1].copy())])

        def hold(self, x):
            while not os.path.exists(self.go):
                time.sleep(0.002)
"""

_TASK = """
    import asyncio
    import os

    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.go = os.path.join(args["model_repository"], "go")

        async def execute(self, requests):
            return [self.respond(request.inputs()[0].as_numpy()) for request in requests]

        def respond(self, x):
            self.task = asyncio.create_task(self.hold(x))
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x[:1].copy())])

        async def hold(self, x):
            while not os.path.exists(self.go):
                await asyncio.sleep(0.002)
"""

MODELS = {"thread": PythonModel(_THREAD), "task": PythonModel(_TASK)}
_BLOCKS = re.compile(r"^penstock_shared_memory_blocks\{.*\} (\S+)$", re.MULTILINE)


def blocks(server: Served) -> float:
    """Blocks of shared memory that models may still look at."""
    with urllib.request.urlopen(server.metrics, timeout=20) as answer:
        return sum(map(float, _BLOCKS.findall(answer.read().decode())))


@pytest.mark.parametrize("model", MODELS)
def test_input_that_a_model_held_is_given_back_while_it_idles(
    client: Client, server: Served, repository: Path, model: str
) -> None:
    client.infer(model, {"X": np.ones(1 << 16, np.float32)})
    assert blocks(server) == 1
    (repository / model / "go").touch()
    wait_until(lambda: blocks(server) == 0)
