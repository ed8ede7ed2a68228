"""The files of weights that vLLM opens, by the rule of its default loader."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from penstock.backend import ModelLoadError
from penstock_backends.vllm.arguments.engine_args import EngineArguments

_LOADERS = ("auto", "fastsafetensors", "hf", "instanttensor", "mistral", "safetensors")
"""The values of `load_format` with which files of safetensors are read whole."""


def safetensors_of(arguments: EngineArguments) -> Sequence[Path]:
    """The files of safetensors that are opened; empty where weights are others, or elsewhere.

    Raises `ModelLoadError` for an index that names a file which is not there.
    """
    folder = Path(arguments.values["model"])
    loader = str(arguments.values.get("load_format", "auto")).lower()
    if loader not in _LOADERS or not folder.is_dir():
        return ()
    official = _weights(folder, "consolidated*") if loader in ("auto", "mistral") else ()
    found = official or (() if loader == "mistral" else _weights(folder, "*"))
    name = "consolidated" if official else "model"
    index = folder / f"{name}.safetensors.index.json"
    if not found or not index.is_file():
        return found
    named = _named(index)
    for file in named:
        if folder / file not in found:
            raise ModelLoadError(f"'{index}' names '{file[:80]}', which is not beside it")
    return [path for path in found if path.name in named]


def _weights(folder: Path, name: str) -> Sequence[Path]:
    """Files, and links that lead nowhere; a pipe would block who reads it."""
    found = sorted(folder.glob(f"{name}.safetensors"))
    return [path for path in found if path.is_file() or not path.exists()]


def _named(index: Path) -> Sequence[str]:
    try:
        return sorted({str(file) for file in json.loads(index.read_bytes())["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelLoadError(f"'{index}' is no index of weights: {error}") from error
