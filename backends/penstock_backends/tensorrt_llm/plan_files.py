"""Plans of TensorRT, told by their content from engines that TensorRT-LLM has built."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.backend import ModelLoadError

_MAGIC: Final = (b"ftrt", b"ptrt")
"""The first bytes of what TensorRT has serialized, of newer and of older releases."""

_BUILT: Final = {"pretrained_config", "builder_config"}
"""Keys of a `config.json` beside an engine of TensorRT-LLM: of newer, and of older releases."""


def refuse_plans(place: Path) -> None:
    """Raise `ModelLoadError` for a plan of another network, or a folder that holds one."""
    if not place.exists():
        return
    folder = place if place.is_dir() else place.parent
    if _is_built(folder / "config.json"):
        return
    files: Iterable[Path] = sorted(place.iterdir()) if place.is_dir() else [place]
    for file in files:
        if file.is_file() and _is_plan(file):
            raise ModelLoadError(
                f"'{file}' is a plan of TensorRT, not an engine of TensorRT-LLM, which has a"
                " config.json beside it: serve the ONNX model that the plan was built of with"
                " backend 'onnxruntime', or run the plan with tensorrt in a model.py of backend"
                " 'python'"
            )


def _is_plan(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(4) in _MAGIC


def _is_built(config: Path) -> bool:
    try:
        return not _BUILT.isdisjoint(json.loads(config.read_bytes()))
    except (OSError, ValueError, TypeError):
        return False
