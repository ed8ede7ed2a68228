"""What a reader of one call walks in the server's process may only become less.

The numbers are those of a warm unary call to a model in a process of its own. Lower them where a
change makes the walk shorter; what would raise them belongs off the path of every call, or into a
function that is there already.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.python_models import write_python_model
from harness import front_walk

_ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(request, "X") for request in requests]
        return [pb_utils.InferenceResponse([tensor]) for tensor in tensors]
"""


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    folder = tmp_path_factory.mktemp("walk")
    write_python_model(folder / "models", "m", _ECHO)
    command = [sys.executable, front_walk.__file__, str(folder / "models"), str(folder / "walks")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    found: dict[str, dict[str, int]] = json.loads(Path(folder / "walks").read_text())
    return found


@pytest.mark.parametrize(
    ("call", "most"),
    [
        ("grpc", {"files": 29, "functions": 143, "changes": 95}),
        ("http", {"files": 29, "functions": 158, "changes": 120}),
    ],
)
def test_a_call_walks_no_further_than_before(
    walks: dict[str, dict[str, int]], call: str, most: dict[str, int]
) -> None:
    assert {name: max(most[name], walked) for name, walked in walks[call].items()} == most
