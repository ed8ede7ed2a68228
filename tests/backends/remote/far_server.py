"""The far server of these tests: a Penstock of its own, and entries that name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.repeat_model import REPEAT
from harness.serving import Served, serving
from penstock.core.config import ModelConfig, Parameter
from penstock.core.tensor import DataType

DATATYPES = [one for one in DataType if one is not DataType.INVALID]

TYPES = 'backend: "identity"\n' + "".join(
    f'{way} {{ name: "{name}{number}" data_type: {datatype.config_name} dims: -1'
    f"{' optional: true' if way == 'input' else ''} }}\n"
    for number, datatype in enumerate(DATATYPES)
    for way, name in (("input", "INPUT"), ("output", "OUTPUT"))
)
"""An input and an output of each datatype."""

ECHO = """\
backend: "identity"
max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: -1 }
output { name: "OUT" data_type: TYPE_FP32 dims: -1 }
"""

SLOW = ECHO + 'parameters { key: "execute_delay_ms" value { string_value: "60000" } }\n'

TELLING = """\
import json
from triton_python_backend_utils import InferenceResponse, Tensor, TritonError
import numpy as np

class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(one) for one in requests]

    def _answer(self, request):
        given = json.loads(request.parameters() or "{}")
        if code := given.get("fail"):
            return InferenceResponse(error=TritonError("as you wished", getattr(TritonError, code)))
        seen = {"id": request.request_id(), "correlation": request.correlation_id(),
                "parameters": given, "timeout": request.timeout(), "flags": request.flags()}
        text = np.array([json.dumps(seen).encode()], object)
        return InferenceResponse([Tensor("SEEN", text)], parameters={"number": 7, "word": "yes"})
"""
TELLING_CONFIG = """\
backend: "python"
input { name: "IN" data_type: TYPE_FP32 dims: -1 }
output { name: "SEEN" data_type: TYPE_STRING dims: 1 }
"""


def add_model(repository: Path, name: str, config: str, code: str = "") -> None:
    """Write a model, with its `model.py` if it has one."""
    version = repository / name / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(config)
    if code:
        (version / "model.py").write_text(code)


@contextmanager
def far_server(folder: Path, *arguments: str) -> Iterator[Served]:
    """A server with all models of this module."""
    repository = folder / "far"
    if not repository.exists():
        add_model(repository, "types", TYPES)
        add_model(repository, "echo", ECHO)
        add_model(repository, "slow", SLOW)
        add_model(repository, "repeat", REPEAT)
        add_model(repository, "telling", TELLING_CONFIG, TELLING)
    with serving(repository, folder / "far.log", "--exit-timeout-secs=1", *arguments) as served:
        yield served


def entry(name: str, address: str, **parameters: str) -> ModelConfig:
    """The configuration of an entry with nothing but its parameters."""
    given = {"address": address, **parameters}
    return ModelConfig(
        name=name,
        backend="remote",
        parameters={key: Parameter(value) for key, value in given.items()},
    )


def entry_text(address: str, **parameters: str) -> str:
    """The same as a file."""
    given = {"address": address, **parameters}
    return 'backend: "remote"\n' + "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
        for key, value in given.items()
    )
