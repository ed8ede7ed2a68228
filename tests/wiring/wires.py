"""All wires there are: fields of configurations and settings, options in process, parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

import penstock.in_process as in_process
from penstock.cli.unsupported import UNSUPPORTED_OPTIONS
from penstock.core.config import ModelConfig, fields_of
from penstock.in_process import frontend, options, request
from penstock.models.config.own_parameters import READERS
from penstock.models.config.unsupported import HINTS, UNSUPPORTED, WITHOUT_EFFECT
from penstock.settings import ModelFile, RateLimitResource, Restriction, Settings, without_effect

_ROOM = "penstock."


def all_wires() -> list[str]:
    """Their names; sections and messages are left out, as they are what their own fields are."""
    wires = [*_paths_of_configurations(), *_paths_of_settings()]
    wires += [f"ModelConfig.parameters[{name}]" for name in READERS]
    for cls in (ModelFile, RateLimitResource, Restriction):
        wires += [f"{cls.__name__}.{field.name}" for field in fields(cls)]
    optional = (options.Options, options.RateLimiterResource, options.ModelLoadDeviceLimit)
    ends = (each.Options for each in (frontend.KServeHttp, frontend.KServeGrpc, frontend.Metrics))
    for part in (*optional, request.InferenceRequest, *ends):
        wires += [f"{_in_process(part)}.{field.name}" for field in fields(part)]
    for module in (in_process, frontend):
        wires += _arguments(module)
    return sorted(set(wires))


def without_use() -> dict[str, str]:
    """The wires that lead nowhere by design, with what the product says when they are given."""
    said = {
        **dict.fromkeys(UNSUPPORTED, "refused by name at load"),
        **dict.fromkeys((*WITHOUT_EFFECT, *HINTS), "said to be without effect, or a hint"),
    }
    found: dict[str, str] = {}
    for wire, paths in _paths_of_configurations().items():
        told = [
            next((said[n] for n in said if f"{path}.".startswith(f"{n}.")), "") for path in paths
        ]
        if all(told):
            found[wire] = told[0]
    options_told = {row.field: "said to be without effect" for row in without_effect.WITHOUT_EFFECT}
    options_told |= {row.field: "refused at the start" for row in UNSUPPORTED_OPTIONS}
    for wire, paths in _paths_of_settings().items():
        if told := [options_told[path] for path in paths if path in options_told]:
            found[wire] = told[0]
    return found


def _paths_of_configurations() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}

    def walk(cls: Any, path: str) -> None:
        for field in fields_of(cls):
            if field.is_message:
                walk(field.element, f"{path}{field.name}.")
            else:
                found.setdefault(f"{cls.__name__}.{field.attribute}", []).append(path + field.name)

    walk(ModelConfig, "")
    return found


def _paths_of_settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}

    def walk(cls: Any, path: str) -> None:
        for field in fields(cls):
            section: Any = field.default_factory
            if is_dataclass(section):
                walk(section, f"{path}{field.name}.")
            else:
                found.setdefault(f"{cls.__name__}.{field.name}", []).append(path + field.name)

    walk(Settings, "")
    return found


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
