"""`EntryPoints`: the functions of vLLM that make its application, where it has them as expected."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from penstock.backend import UnsupportedError

_PLACES: Final = {
    "make_arg_parser": ("launchers.cli_args", "openai.cli_args"),
    "build_app": ("launchers.app", "openai.api_server"),
    "init_app_state": ("launchers.api_server.app_state", "openai.api_server"),
}
"""Modules below `vllm.entrypoints` by function, the newest first."""

PARAMETERS: Final = {
    "make_arg_parser": ("parser",),
    "build_app": ("args", "supported_tasks", "model_config"),
    "init_app_state": ("engine_client", "state", "args", "supported_tasks"),
}


@dataclass(frozen=True, slots=True)
class EntryPoints:
    """The functions, by vLLM's names."""

    make_arg_parser: Callable[..., Any]
    build_app: Callable[..., Any]
    init_app_state: Callable[..., Any]

    @classmethod
    def find(cls, parameters: Mapping[str, tuple[str, ...]] = PARAMETERS) -> EntryPoints:
        """Import them, which takes a second; raises `UnsupportedError` for what does not fit."""
        return cls(**{name: _function(name, _PLACES[name], of) for name, of in parameters.items()})


def _function(name: str, modules: Sequence[str], parameters: tuple[str, ...]) -> Callable[..., Any]:
    for module in modules:
        try:
            found = getattr(import_module(f"vllm.entrypoints.{module}"), name, None)
        except ImportError:
            continue
        if callable(found) and tuple(inspect.signature(found).parameters) == parameters:
            return found  # type: ignore[no-any-return]
    version = getattr(import_module("vllm"), "__version__", "")
    raise UnsupportedError(f"vLLM {version} has no {name}({', '.join(parameters)})")
