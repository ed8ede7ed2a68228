"""How quickly a model is ready."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from conformance.python_models.client import Client
from conformance.python_models.repository import PythonModel

_PID = """
    import os
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            pid = np.array([os.getpid()], np.float32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", pid)]) for _ in requests]
"""

ARGUMENTS = ("--model-control-mode=explicit",)
MODELS = {"pid": PythonModel(_PID)}


def test_model_is_ready_300_ms_after_numpy(client: Client) -> None:
    """In time of the processor, which does not depend on what else the machine does."""
    numpy = min(_time_of_numpy() for _ in range(3))
    assert min(_time_of_start(client) for _ in range(3)) - numpy < 0.3


def _time_of_numpy() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import numpy"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _time_of_start(client: Client) -> float:
    client.load("pid")
    pid = int(client.infer("pid")["Y"][0])
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = map(int, fields[11:13])
    return (user + system) / os.sysconf("SC_CLK_TCK")
