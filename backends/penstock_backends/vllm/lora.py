"""Paths of LoRA adapters: those of a version directory, and those that operators may add."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.backend import InvalidRequestError, ModelConfig, ModelLoadError
from penstock_backends.vllm.arguments.engine_args import EngineArguments

FILE: Final = "multi_lora.json"

FOLDERS: Final = "penstock.adapter_folders"
"""The parameter of a model with further folders of adapters, separated by colons."""

DISABLED: Final = "LoRA feature is not enabled."

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_KEPT = 8
"""Adapters that an engine keeps unless `model.json` says otherwise, in memory of the host."""


def read_paths(version_path: Path) -> dict[str, str]:
    """The adapters in `multi_lora.json` by name; paths may be relative to the version directory.

    Raises `ModelLoadError`.
    """
    path = version_path / FILE
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelLoadError(f"Triton backend cannot find {path}.") from error
    except ValueError as error:
        raise ModelLoadError(f"'{path}' is not JSON: {error}") from error
    if not isinstance(given, dict) or not all(isinstance(at, str) and at for at in given.values()):
        raise ModelLoadError(f"'{path}' must hold a JSON object of names and paths")
    return {name: _resolved(version_path, at) for name, at in given.items()}


def _resolved(version_path: Path, path: str) -> str:
    inside = version_path / path
    return str(inside) if inside.exists() else path


def keep_adapters(arguments: EngineArguments, count: int) -> None:
    """Have the engine keep all of `count` adapters, and some more, unless it is told how many."""
    most = arguments.values.get("max_loras", 1)
    kept = max(count, _KEPT, most if isinstance(most, int) else 1)
    arguments.values.setdefault("max_cpu_loras", kept)


def allowed_folders(config: ModelConfig, version_path: Path) -> list[Path]:
    """The folders below which operators may add adapters; raises `ModelLoadError`."""
    further = (config.parameter(FOLDERS) or "").split(":")
    folders = [Path(one) for one in further if one]
    for folder in folders:
        if not folder.is_absolute():
            raise ModelLoadError(f"parameter '{FOLDERS}': '{folder}' is not an absolute path")
    return [version_path, *folders]


def checked_name(name: object) -> str:
    """A name for a new adapter; raises `InvalidRequestError`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"adapter name '{name}' must be letters, digits, '.', '_' and '-', and begin with a"
            " letter or a digit"
        )
    return name


def checked_path(path: object, folders: Iterable[Path]) -> str:
    """The folder of a new adapter, links resolved; raises `InvalidRequestError`.

    A relative path is one below the first of the `folders` in which it exists.
    """
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidRequestError("argument 'path' must be the folder of the adapter, as text")
    for folder in folders:
        root = Path(os.path.realpath(folder))
        found = Path(os.path.realpath(root / path))
        if found.is_relative_to(root) and found.is_dir():
            return str(found)
    raise InvalidRequestError(
        f"'{path}' is not a folder below the model's version directory or one of '{FOLDERS}'"
    )
