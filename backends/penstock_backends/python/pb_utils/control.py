"""Model control from within a model: load, unload, readiness (contract PY-32)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock_backends.python.pb_utils import runtime
from penstock_backends.python.pb_utils.exception import TritonModelException


def load_model(
    model_name: str, config: str | None = "", files: Mapping[str, bytes] | None = None
) -> None:
    """Load a model, or load it again; returns when it is ready.

    `config` is JSON that replaces the repository's configuration. `files`, by names such as
    `file:1/model.onnx`, replace the model's directory, and then `config` must be given.
    """
    _control(
        "Failed to load model", "load", model_name, config or "", _checked_files(model_name, files)
    )


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Unload a model; with `unload_dependents` also the models loaded with it, as an ensemble's."""
    _control("Failed to unload model", "unload", model_name, bool(unload_dependents))


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Whether requests to the model would be served; without a version, to any of them."""
    return bool(_control("Failed to check model readiness", "ready", model_name, model_version))


def _checked_files(model_name: str, files: Mapping[str, bytes] | None) -> dict[str, bytes]:
    if not isinstance(files, Mapping | None):
        raise TritonModelException(
            f"failed to load model '{model_name}', files should be a dictionary of file paths and"
            " file contents"
        )
    for content in (files or {}).values():
        if not isinstance(content, bytes):
            raise TypeError(
                f"Object of type '{type(content).__name__}' is not an instance of 'bytes'"
            )
    return dict(files or {})


def _control(failed: str, verb: str, *arguments: Any) -> Any:
    try:
        return runtime.current().control(verb, *arguments)
    except TritonModelException as error:
        raise TritonModelException(f"{failed}: {error}") from error
