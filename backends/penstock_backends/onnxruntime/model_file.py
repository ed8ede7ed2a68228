"""The path of a model version's ONNX file (contract R-13)."""

from __future__ import annotations

from pathlib import Path

from penstock.backend import ModelConfig, ModelLoadError

_DEFAULT = "model.onnx"


def model_file(config: ModelConfig, version_path: Path) -> Path:
    """The file to load: `model.onnx`, or that in the directory of this name, with external data."""
    path = version_path / (config.default_model_filename or _DEFAULT)
    if path.is_dir():
        path /= _DEFAULT
    if not path.is_file():
        raise ModelLoadError(f"model '{config.name}': file {path} does not exist")
    return path
