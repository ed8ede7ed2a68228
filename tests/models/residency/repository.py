"""A repository of small models in Python, all alike to the memory budget."""

from __future__ import annotations

from pathlib import Path

from models.sizing.headers.files import safetensors

ONE = 34_000_000
"""Bytes of the memory budget in which one of these models has room, and two have not."""

_TENSORS = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
_MODEL = """import os, time
import triton_python_backend_utils as pb_utils

LOG = {log!r}

with open(os.path.join(LOG, "loads"), "a") as log:
    log.write({name!r} + "\\n")

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
{work}
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + 1)])
"""
WAITS = """
        open(os.path.join(LOG, f"waits-{x[0]:g}"), "w").close()
        time.sleep(float(x[0]))
"""
CALLS = """
        called = pb_utils.InferenceRequest(
            model_name="plain", requested_output_names=["Y"], inputs=[pb_utils.Tensor("X", x)]
        ).exec()
        if called.has_error():
            return pb_utils.InferenceResponse(error=called.error())
        x = pb_utils.get_output_tensor_by_name(called, "Y").as_numpy()
"""


class Repository:
    """Writes models, and tells which were loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def add(self, name: str, work: str = "", **parameters: str) -> None:
        """A model that adds one to its input, after some `work`."""
        code = _MODEL.format(log=str(self.path.parent), name=name, work=work)
        self.write(name, 'backend: "python"' + _TENSORS, code, **parameters)

    def write(self, name: str, config: str, code: str, **parameters: str) -> None:
        """A model of this configuration and code, with parameters that are Penstock's own."""
        folder = self.path / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(code)
        for key, value in parameters.items():
            config += (
                f'parameters {{ key: "penstock.{key}" value {{ string_value: "{value}" }} }}\n'
            )
        (folder.parent / "config.pbtxt").write_text(config)

    def add_weights(self, name: str, size: int) -> None:
        """A file that looks as if a model had weights of so many bytes; it takes no place."""
        whole = safetensors({"a": ("U8", [0], 0)}).replace(b"[0, 0]", b"[0, %d]" % size)
        length = len(whole) - 8
        with (self.path / name / "1" / "model.safetensors").open("wb") as file:
            file.write(length.to_bytes(8, "little") + whole[8:])
            file.truncate(8 + length + size)

    def add_ensemble(self, name: str, first: str, second: str) -> None:
        """An ensemble of two of the models, one behind the other."""
        (self.path / name / "1").mkdir(parents=True)
        steps = [
            f'{{ model_name: "{model}" model_version: -1'
            f' input_map {{ key: "X" value: "{x}" }} output_map {{ key: "Y" value: "{y}" }} }}'
            for model, x, y in ((first, "X", "Z"), (second, "Z", "Y"))
        ]
        scheduling = f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}\n"
        config = 'platform: "ensemble"' + _TENSORS + scheduling
        (self.path / name / "config.pbtxt").write_text(config)

    def loads(self) -> list[str]:
        """The models in the order in which processes of them began."""
        log = self.path.parent / "loads"
        return log.read_text().split() if log.exists() else []
