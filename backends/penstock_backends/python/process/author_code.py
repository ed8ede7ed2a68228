"""Loader of `model.py`, and wrapper that calls a `TritonPythonModel` as Triton's backend does."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from penstock.core.errors import InternalError, ModelLoadError
from penstock.model import Model
from penstock_backends.python.model_code import CLASS, ModelCode
from penstock_backends.python.process.asyncio_config import find_model


def load_class(code: ModelCode) -> type[Any]:
    """The model's class, of either form; modules beside its file become importable."""
    module = _import(code)
    if code.class_name:
        return _named_class(module, code)
    found = getattr(module, CLASS, None) or find_model(module)
    if found is None:
        raise code.without_class()
    if not isinstance(found, type):
        raise InternalError(f"'{CLASS}' in '{code.path}' is not a class")
    return found


def _named_class(module: ModuleType, code: ModelCode) -> type[Any]:
    """The class that the configuration names."""
    found = getattr(module, code.class_name, None)
    if not isinstance(found, type) or not (issubclass(found, Model) or hasattr(found, "execute")):
        raise ModelLoadError(
            f"'{code.class_name}' in '{code.path}' is not a model: it is neither made from "
            "penstock.model.Model nor a class with 'execute'"
        )
    return found


def _import(code: ModelCode) -> ModuleType:
    """Run the file as a module of a package, so that relative imports work."""
    path, package = code.existing_path, code.package
    name = code.module_name
    code.make_importable()
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
    """An instance of the model's class; callbacks that the class lacks do nothing."""

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
        return self._model.execute(list(requests))  # a copy, since the model may change the list

    def finalize(self) -> None:
        """Call the model's `finalize`, which may be missing."""
        if hasattr(self._model, "finalize"):
            self._model.finalize()

    @property
    def has_readiness(self) -> bool:
        """Whether the model has a method `is_ready` (contract PY-06)."""
        return hasattr(self._model, "is_ready")

    @property
    def awaits_readiness(self) -> bool:
        """Whether `is_ready` is a coroutine function."""
        return inspect.iscoroutinefunction(getattr(self._model, "is_ready", None))

    def is_ready(self) -> Any:
        """The result of the model's `is_ready`; a coroutine if that is asynchronous."""
        return self._model.is_ready()
