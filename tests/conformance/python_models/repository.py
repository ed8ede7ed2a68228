"""Repositories of Python models, written from the code that tests hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Protocol

_TENSOR = re.compile(r"(\w+):(\w+)\[([\d, -]*)\](\?)?")


@dataclass(frozen=True, slots=True)
class PythonModel:
    """One model as its author writes it.

    Tensors are named as `X:FP32[-1] Y:STRING[1]?`, where `?` makes an input optional. `config`
    has further lines of `config.pbtxt`; `None` stands for a model without that file. `files` lie
    in the version's directory, beside the code or in place of it.
    """

    code: str = ""
    inputs: str = "X:FP32[-1]"
    outputs: str = "Y:FP32[-1]"
    config: str | None = ""
    files: Mapping[str, str] = field(default_factory=dict)
    instances: int = 1
    backend: str = "python"

    def write(self, directory: Path) -> None:
        """Write the model into a directory that has its name."""
        files = {"model.py": self.code} if self.code else {}
        for name, text in {**files, **self.files}.items():
            path = directory / "1" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text).lstrip())
        if self.config is not None:
            (directory / "config.pbtxt").write_text(self._config(directory.name))

    def _config(self, name: str) -> str:
        lines = [f'name: "{name}"', f'backend: "{self.backend}"', *_tensors("input", self.inputs)]
        lines += _tensors("output", self.outputs)
        lines.append(f"instance_group [ {{ kind: KIND_CPU count: {self.instances} }} ]")
        lines.append(self.config or "")
        return "\n".join(lines) + "\n"


DECOUPLED = "model_transaction_policy { decoupled: true }"


def parameter(key: str, value: object) -> str:
    """A line of `config.pbtxt` that sets a parameter."""
    return f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}'


class Writable(Protocol):
    """Any kind of model."""

    def write(self, directory: Path) -> None: ...


def write_models(repository: Path, models: Mapping[str, Writable]) -> Path:
    """Write models by their names."""
    for name, model in models.items():
        (repository / name).mkdir(parents=True)
        model.write(repository / name)
    return repository


def _tensors(kind: str, described: str) -> list[str]:
    lines = []
    for name, datatype, dims, optional in _TENSOR.findall(described):
        more = " optional: true" if optional else ""
        lines.append(
            f'{kind} [ {{ name: "{name}" data_type: TYPE_{datatype} dims: [{dims}]{more} }} ]'
        )
    return lines
