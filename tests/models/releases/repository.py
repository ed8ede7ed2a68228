"""Two models, each of which answers with a number of its own; the second fails below zero."""

from __future__ import annotations

from pathlib import Path

_CONFIG = """
backend: "python"
max_batch_size: 4
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
_MODEL = """import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if {number} == 2 and x.min() < 0:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("x is bad"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * 0 + {number})])
"""


def write_models(repository: Path) -> None:
    """Write `old` and `new`."""
    for number, name in enumerate(("old", "new"), 1):
        folder = repository / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(_MODEL.format(number=number))
        (folder.parent / "config.pbtxt").write_text(_CONFIG)
