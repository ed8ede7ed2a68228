"""The forty models of the scenario `residency`, each with an answer that is known."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

_TENSORS = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

HELD = np.ones({size}, "u1")


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
{work}
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + np.float32({added}))])
"""
_CALLS = """
        called = pb_utils.InferenceRequest(
            model_name={name!r}, requested_output_names=["Y"], inputs=[pb_utils.Tensor("X", x)]
        ).exec()
        if called.has_error():
            return pb_utils.InferenceResponse(error=called.error())
        x = pb_utils.get_output_tensor_by_name(called, "Y").as_numpy()
"""
_SIZE = 32 << 20
_PLAIN, _ONNX, _PIPES, _CALLERS = 20, 12, 4, 2


class ResidencyModels:
    """Writes the models into a folder, and knows what each answers.

    `callable` are those that clients call, the most liked first; `plain` those that are reloaded.
    `pinned` is always loaded, `language` speaks OpenAI's API, `callers` call others.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.pinned, self.language = "pinned", "tiny_llm"
        self._added: dict[str, float] = {}
        self._needs: dict[str, list[str]] = {}
        self.plain = [f"plain{number}" for number in range(_PLAIN)]
        self.callers = [f"caller{number}" for number in range(_CALLERS)]
        for number, name in enumerate(self.plain):
            self._python(name, number + 1)
        self._python(self.pinned, 1, size=1, more=_parameter("residency", "always"))
        onnx = [f"onnx{number}" for number in range(_ONNX)]
        for number, name in enumerate(onnx):
            self._onnx(name, 100 + number)
        pipes = [f"pipe{number}" for number in range(_PIPES)]
        for number, name in enumerate(pipes):
            self._pipe(name, self.plain[2 * number], onnx[number])
        for number, name in enumerate(self.callers):
            called = self.plain[-1 - number]
            self._needs[name] = [called]
            self._python(name, 1000, work=_CALLS.format(name=called))
            self._added[name] += self._added[called]
        self._language()
        mixed = [*self.plain, *onnx, *pipes, *self.callers, self.language]
        self.callable = sorted(mixed, key=lambda name: name[::-1])

    def expected(self, name: str, x: float) -> float:
        """The answer of a model with tensors to one number."""
        return x + self._added[name]

    def touched(self, name: str) -> list[str]:
        """The models whose trouble is that of a call."""
        return [name, *self._needs.get(name, [])]

    def touch(self, name: str) -> None:
        """Change the file of a model in Python, so that a load loads it anew."""
        os.utime(self.path / name / "1" / "model.py")

    def _python(
        self, name: str, added: int, work: str = "", size: int = _SIZE, more: str = ""
    ) -> None:
        folder = self._folder(name, 'backend: "python"' + _TENSORS + more)
        (folder / "model.py").write_text(_MODEL.format(size=size, work=work, added=added))
        self._added[name] = added

    def _onnx(self, name: str, added: int) -> None:
        """A graph that adds a number, with weights that are added, and are zero."""
        weights = numpy_helper.from_array(np.zeros(4 << 20, np.float32), "weights")
        number = numpy_helper.from_array(np.array([added], np.float32), "number")
        rows = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None]) for n in "XY"]
        nodes = [
            helper.make_node("ReduceSum", ["weights"], ["nothing"], keepdims=0),
            helper.make_node("Add", ["X", "number"], ["sum"]),
            helper.make_node("Add", ["sum", "nothing"], ["Y"]),
        ]
        graph = helper.make_graph(nodes, name, rows[:1], rows[1:], [weights, number])
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=9)
        config = 'backend: "onnxruntime"' + _TENSORS + _parameter("host", "process")
        config += "instance_group { count: 1 kind: KIND_CPU }\n"
        folder = self._folder(name, config)
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        self._added[name] = added

    def _pipe(self, name: str, first: str, second: str) -> None:
        steps = [
            f'{{ model_name: "{model}" model_version: -1'
            f' input_map {{ key: "X" value: "{x}" }} output_map {{ key: "Y" value: "{y}" }} }}'
            for model, x, y in ((first, "X", "Z"), (second, "Z", "Y"))
        ]
        scheduling = f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}\n"
        self._folder(name, 'platform: "ensemble"' + _TENSORS + scheduling)
        self._needs[name] = [first, second]
        self._added[name] = self._added[first] + self._added[second]

    def _language(self) -> None:
        """The language model of the demo."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "penstock", "demo", folder]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            shutil.copytree(Path(folder, self.language), self.path / self.language)

    def _folder(self, name: str, config: str) -> Path:
        folder = self.path / name / "1"
        folder.mkdir(parents=True)
        (folder.parent / "config.pbtxt").write_text(config)
        return folder


def _parameter(name: str, value: str) -> str:
    return f'parameters {{ key: "penstock.{name}" value {{ string_value: "{value}" }} }}\n'
