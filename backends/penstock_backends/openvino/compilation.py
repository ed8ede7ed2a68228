"""Reads and compiles models with OpenVINO."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from penstock.backend import BackendNotInstalledError, ModelConfig, ModelLoadError
from penstock_backends.openvino.model_graph import reason
from penstock_backends.openvino.settings import OpenVinoSettings


def read_model(config: ModelConfig, path: Path, settings: OpenVinoSettings) -> Any:
    """Read a file or folder of any format that OpenVINO knows; raises `ModelLoadError`."""
    core = _core()
    try:
        if settings.extension:
            core.add_extension(settings.extension)
        return core.read_model(str(path))
    except Exception as error:  # OpenVINO raises plain `RuntimeError`
        raise ModelLoadError(
            f"failed to load model '{config.name}': openvino error in reading model:"
            f" {reason(error)}"
        ) from error


def compile_model(config: ModelConfig, model: Any, settings: OpenVinoSettings) -> Any:
    """Compile what was read, for the settings' device; raises `ModelLoadError`."""
    core = _core()
    try:
        properties = dict(settings.properties)
        known = core.get_property(settings.device, "SUPPORTED_PROPERTIES")
        if settings.compilation_threads and "COMPILATION_NUM_THREADS" in known:
            properties["COMPILATION_NUM_THREADS"] = settings.compilation_threads
        return core.compile_model(model, settings.device, properties)
    except Exception as error:  # OpenVINO raises plain `RuntimeError`
        raise ModelLoadError(
            f"failed to load model '{config.name}': openvino error in loading model on"
            f" {settings.device}: {reason(error)}"
        ) from error


@cache
def _core() -> Any:
    try:
        from openvino import Core
    except ImportError as error:
        raise BackendNotInstalledError(
            "the openvino backend needs a package that is not installed; install it with: "
            "pip install 'penstock[openvino-runtime]'"
        ) from error
    return Core()
