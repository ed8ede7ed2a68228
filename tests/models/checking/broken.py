"""Thirty repositories as people break them, and what is told of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_IN = 'input [\n  { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] }\n]\n'
_OUT = 'output [\n  { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] }\n]\n'
_IDENTITY = f'backend: "identity"\nmax_batch_size: 8\n{_IN}{_OUT}'
_ONNX = f'backend: "onnxruntime"\nmax_batch_size: 8\n{_IN}{_OUT}'
_PYTHON = f'backend: "python"\n{_IN}{_OUT}'
_MODEL = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


@dataclass(frozen=True)
class Broken:
    """A model `m`, and what is found: the file and line, a part of the reason and of the fix."""

    config: str
    place: str
    reason: str
    fix: str
    files: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    version: str = "1"


def _ensemble(first: str, second: str, more: str = "") -> str:
    return f"""platform: "ensemble"
{more}input [ {{ name: "X" data_type: TYPE_FP32 dims: [ 4 ] }} ]
output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ 4 ] }} ]
ensemble_scheduling {{
  step [
    {{
      model_name: "{first}"
      model_version: -1
      input_map {{ key: "IN" value: "X" }}
      output_map {{ key: "OUT" value: "between" }}
    }},
    {{
      model_name: "{second}"
      model_version: -1
      input_map {{ key: "IN" value: "between" }}
      output_map {{ key: "OUT" value: "Y" }}
    }}
  ]
}}
"""


BROKEN: Mapping[str, Broken] = {
    "a brace that is not closed": Broken(
        'backend: "identity"\ninput [\n  { name: "IN"\n', "config.pbtxt:3", 'Expected "}"', "'}'"
    ),
    "a field misspelled": Broken(
        _IDENTITY.replace("max_batch_size", "max_batchsize"),
        "config.pbtxt:2", 'no field named "max_batchsize"', "max_batch_size",
    ),
    "a type of NumPy": Broken(
        _IDENTITY.replace("TYPE_FP32", "FLOAT32", 1),
        "config.pbtxt:4", "no value named FLOAT32", "names that are listed",
    ),
    "two schedulers": Broken(
        f"{_IDENTITY}dynamic_batching {{ }}\nsequence_batching {{ }}\n",
        "config.pbtxt:10", "oneof", "one of the two",
    ),
    "a copy with the old name": Broken(
        f'name: "resnet"\n{_IDENTITY}', "config.pbtxt:1", "directory name 'm'", 'name: "m"'
    ),
    "no backend": Broken(f"{_IN}{_OUT}", "config.pbtxt:1", "determine backend", "backend:"),
    "a backend misspelled": Broken(
        _IDENTITY.replace('"identity"', '"onnxrutime"'),
        "config.pbtxt:1", "unable to find backend 'onnxrutime'", "onnxruntime",
    ),
    "an old platform": Broken(
        f'platform: "caffe2_netdef"\n{_IN}{_OUT}',
        "config.pbtxt:1", "unexpected platform type 'caffe2_netdef'", "backend:",
    ),
    "a platform for another backend": Broken(
        f'platform: "tensorrt_plan"\n{_ONNX}', "config.pbtxt:1", "'platform' and 'backend' pair",
        "leave platform out",
    ),
    "no dims": Broken(
        _IDENTITY.replace("dims: [ 4 ]", "", 1), "config.pbtxt:4", "must specify 'dims'", "dims:"
    ),
    "no data type": Broken(
        _IDENTITY.replace("data_type: TYPE_FP32", "", 1),
        "config.pbtxt:4", "must specify 'data_type'", "data_type:",
    ),
    "a dimension of 0": Broken(
        _IDENTITY.replace(_OUT, _OUT.replace("[ 4", "[ 0")),
        "config.pbtxt:7", "'OUT' dimension must be integer >= 1", "-1 where",
    ),
    "a reshape of another size": Broken(
        _IDENTITY.replace("[ 4 ] }", "[ 4 ]\n    reshape { shape: [ 2, 3 ] } }", 1),
        "config.pbtxt:4", "different size for dims and reshape", "as many elements",
    ),
    "a preferred size too large": Broken(
        f"{_IDENTITY}dynamic_batching {{\n  preferred_batch_size: [ 4, 16 ]\n}}\n",
        "config.pbtxt:10", "must be <= max batch size", "a larger max_batch_size",
    ),
    "a control without values": Broken(
        f'{_IDENTITY}sequence_batching {{\n  control_input [\n    {{ name: "START"\n'
        "      control [ { kind: CONTROL_SEQUENCE_START } ] }\n  ]\n}\n",
        "config.pbtxt:12", "int32_false_true", "[ 0, 1 ]",
    ),
    "a cache for many answers": Broken(
        f"{_IDENTITY}response_cache {{ enable: true }}\n"
        "model_transaction_policy { decoupled: true }\n",
        "config.pbtxt:10", "Response Cache does not currently support", "leave it out",
    ),
    "GPUs on a CPU": Broken(
        f"{_IDENTITY}instance_group [\n  {{ kind: KIND_CPU gpus: [ 0, 1 ] }}\n]\n",
        "config.pbtxt:10", "specifies one or more GPUs", "KIND_GPU",
    ),
    "a parameter misspelled": Broken(
        f'{_IDENTITY}parameters {{\n  key: "penstock.hang_second"\n'
        '  value: { string_value: "3" }\n}\n',
        "config.pbtxt:10", "'penstock.hang_second'", "penstock.hang_seconds",
    ),
    "no file of the model": Broken(
        _ONNX, "config.pbtxt:1", "model.onnx does not exist", "model.onnx"
    ),
    "another file of the model": Broken(
        _ONNX, "config.pbtxt:1", "model.onnx does not exist",
        'default_model_filename: "resnet50.onnx"', {"1/resnet50.onnx": "x"},
    ),
    "the file beside the version": Broken(
        _PYTHON, "config.pbtxt:1", "model.py' does not exist", "1/model.py", {"model.py": _MODEL}
    ),
    "code that is none": Broken(
        _PYTHON, "model.py:2", "SyntaxError", "see the line",
        {"1/model.py": "class TritonPythonModel:\n    def execute(self, requests)\n        pass\n"},
    ),
    "a class misspelled": Broken(
        _PYTHON, "config.pbtxt:1", "no attribute 'TritonPythonModel'", "class TritonPythonModel",
        {"1/model.py": _MODEL.replace("PythonModel", "PythonModle")},
    ),
    "no version": Broken(
        _IDENTITY, "config.pbtxt:1", "at least one version must be available", "such as '1'",
        version="v1",
    ),
    "labels that are not there": Broken(
        _IDENTITY.replace("[ 4 ] }\n]\n", '[ 4 ]\n    label_filename: "labels.txt" }\n]\n')
        .replace('    label_filename: "labels.txt"', "", 1),
        "config.pbtxt:9", "labels.txt", "the file 'labels.txt'",
    ),
    "settings of an engine with a comma": Broken(
        'backend: "vllm"\n', "model.json:3", "is not JSON", "no comma",
        # Some Pythons call the comma wrong, others what comes behind it.
        {"1/model.json": '{\n\n  "model": "facebook/opt-125m",}\n'},
    ),
    "a step without its model": Broken(
        _ensemble("one", "tow"), "config.pbtxt:13", "not available or ambiguous: tow", "'tow'",
        others={"one": _IDENTITY, "two": _IDENTITY},
    ),
    "steps of two types": Broken(
        _ensemble("one", "two"), "config.pbtxt:10", "inconsistent data type", "same data_type",
        others={"one": _IDENTITY, "two": _IDENTITY.replace("FP32", "INT64")},
    ),
    "steps of two shapes": Broken(
        _ensemble("one", "two"), "config.pbtxt:10", "inconsistent shape", "same data_type and dims",
        others={"one": _IDENTITY, "two": _IDENTITY.replace("[ 4 ]", "[ 5 ]")},
    ),
    "instances of an ensemble": Broken(
        _ensemble("one", "one", "instance_group [ { count: 2 } ]\n"), "config.pbtxt:2",
        "instance group should not be specified", "leave it out", others={"one": _IDENTITY},
    ),
}  # fmt: skip
