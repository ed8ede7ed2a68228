"""What users of Triton's Python backend set: it is taken, also where there is nothing to set."""

from __future__ import annotations

import pytest

from conformance.python_models.client import Client, floats
from conformance.python_models.repository import PythonModel, parameter

_ECHO = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [
                pb_utils.InferenceResponse([pb_utils.Tensor("Y", request.inputs()[0].as_numpy())])
                for request in requests
                if request.inputs()[0].is_cpu()
            ]
"""

ARGUMENTS = (
    "--model-control-mode=explicit",
    "--backend-config=python,shm-default-byte-size=5242880",
    "--backend-config=python,shm-growth-byte-size=1048576",
    "--backend-config=python,shm-region-prefix-name=mine",
    "--backend-config=python,stub-timeout-seconds=60",
    "--backend-config=python,thread-pool-size=4",
)
MODELS = {
    choice: PythonModel(_ECHO, config=parameter("FORCE_CPU_ONLY_INPUT_TENSORS", choice))
    for choice in ("yes", "no")
}


@pytest.mark.contract("PY-22", "PY-37")
@pytest.mark.parametrize("choice", MODELS)
def test_sizes_of_memory_and_the_place_of_inputs_may_be_set(client: Client, choice: str) -> None:
    client.load(choice)
    assert client.infer(choice, {"X": floats(1, 2)})["Y"].tolist() == [1, 2]
