"""Loads `model.py`, makes the model, and calls it as Triton's Python backend does."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.core.errors import InternalError
from penstock_backends.python.native_config import find_model

_CLASS = "TritonPythonModel"


def load_class(path: Path) -> type[Any]:
    """The model's class, of either form; version and model directory become importable."""
    module = _import(path)
    found = getattr(module, _CLASS, None) or find_model(module)
    if found is None:
        name = f"{path.parent.name}.{path.stem}"
        raise InternalError(f"AttributeError: module '{name}' has no attribute '{_CLASS}'")
    if not isinstance(found, type):
        raise InternalError(f"'{_CLASS}' in '{path}' is no class")
    return found


def _import(path: Path) -> ModuleType:
    """Run the file as a module of its version's package, so that relative imports work."""
    if not path.is_file():
        raise InternalError(f"model file '{path}' does not exist")
    package = path.parent.name
    name = f"{package}.{path.stem}"
    for directory in (path.parent, path.parent.parent):
        sys.path.insert(0, str(directory))
    parent = ModuleType(package)
    parent.__path__ = [str(path.parent)]
    sys.modules[package] = parent
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class PythonModel:
    """One object of the model's class; callbacks that the model lacks do nothing."""

    def __init__(self, cls: type[Any]) -> None:
        self._model = cls()
        execute = getattr(self._model, "execute", None)
        self.asynchronous = inspect.iscoroutinefunction(execute)

    def initialize(self, arguments: Mapping[str, str]) -> None:
        """Call the model's `initialize`, which may be missing."""
        if hasattr(self._model, "initialize"):
            self._model.initialize(dict(arguments))

    def execute(self, requests: Sequence[Any]) -> Any:
        """Call the model's `execute`; a coroutine when the model is asynchronous."""
        return self._model.execute(requests)

    def finalize(self) -> None:
        """Call the model's `finalize`, which may be missing."""
        if hasattr(self._model, "finalize"):
            self._model.finalize()

    @property
    def tells_readiness(self) -> bool:
        """Whether the model has an opinion on being ready (contract PY-06)."""
        return hasattr(self._model, "is_ready")

    def is_ready(self) -> Any:
        """The model's opinion; a coroutine when it is asynchronous there."""
        return self._model.is_ready()
