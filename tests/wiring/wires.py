"""All wires there are: fields of configurations and settings, options in process, parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

import penstock.in_process as in_process
from penstock.core.config import ModelConfig, fields_of
from penstock.in_process import frontend, options, request
from penstock.models.config.own_parameters import READERS
from penstock.settings import ModelFile, RateLimitResource, Restriction, Settings

_ROOM = "penstock."


def all_wires() -> list[str]:
    """Their names; sections and messages are left out, as they are what their own fields are."""
    wires = [f"{cls.__name__}.{name}" for cls, name in _leaves(ModelConfig, set())]
    wires += [f"ModelConfig.parameters[{name}]" for name in READERS]
    wires += [f"{cls.__name__}.{name}" for cls, name in _settings(Settings)]
    for cls in (ModelFile, RateLimitResource, Restriction):
        wires += [f"{cls.__name__}.{field.name}" for field in fields(cls)]
    optional = (options.Options, options.RateLimiterResource, options.ModelLoadDeviceLimit)
    ends = (each.Options for each in (frontend.KServeHttp, frontend.KServeGrpc, frontend.Metrics))
    for part in (*optional, request.InferenceRequest, *ends):
        wires += [f"{_in_process(part)}.{field.name}" for field in fields(part)]
    for module in (in_process, frontend):
        wires += _arguments(module)
    return sorted(set(wires))


def _leaves(cls: Any, seen: set[Any]) -> Iterator[tuple[Any, str]]:
    seen.add(cls)
    for field in fields_of(cls):
        if not field.is_message:
            yield cls, field.attribute
        elif field.element not in seen:
            yield from _leaves(field.element, seen)


def _settings(cls: Any) -> Iterator[tuple[Any, str]]:
    for field in fields(cls):
        if is_dataclass(field.default_factory):
            yield from _settings(field.default_factory)
        else:
            yield cls, field.name


def _in_process(cls: Any) -> str:
    return f"{cls.__module__.removeprefix(_ROOM)}.{cls.__qualname__}"


def _arguments(module: ModuleType) -> Iterator[str]:
    """Optional arguments of public methods, as `hook.lay_arguments` finds them."""
    for cls in vars(module).values():
        if not inspect.isclass(cls) or not cls.__module__.startswith("penstock.in_process"):
            continue
        for name, method in vars(cls).items():
            public = not name.startswith("_") or name == "__init__"
            if public and inspect.isfunction(method) and not is_dataclass(cls):
                for each in inspect.signature(method).parameters.values():
                    if each.default is not each.empty:
                        yield f"{_in_process(cls)}.{name}({each.name})"
