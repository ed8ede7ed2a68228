"""Model control from within a model: load, unload, readiness (contract PY-32)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock_backends.python.pb_utils import runtime
from penstock_backends.python.pb_utils.arguments import Text, text, truth
from penstock_backends.python.pb_utils.exception import TritonModelException


def load_model(
    model_name: Text,
    config: Text | None = "",
    files: Mapping[str, bytes] | Mapping[bytes, bytes] | None = None,
) -> None:
    """Load a model, or load it again; returns when it is ready.

    `config` is JSON that replaces the repository's configuration. `files`, by names such as
    `file:1/model.onnx`, replace the model's directory, and then `config` must be given.
    """
    name = text(model_name, "model_name")
    override = text("" if config is None else config, "config")
    _control("Failed to load model", "load", name, override, _checked_files(name, files))


def unload_model(model_name: Text, unload_dependents: bool = False) -> None:
    """Unload a model; with `unload_dependents` also the models loaded with it, as an ensemble's."""
    dependents = truth(unload_dependents, "unload_dependents")
    _control("Failed to unload model", "unload", text(model_name, "model_name"), dependents)


def is_model_ready(model_name: Text, model_version: Text = "") -> bool:
    """Whether requests to the model would be served; without a version, to any of them."""
    name, version = text(model_name, "model_name"), text(model_version, "model_version")
    return bool(_control("Failed to check model readiness", "ready", name, version))


def _checked_files(
    model_name: str, files: Mapping[str, bytes] | Mapping[bytes, bytes] | None
) -> dict[str, bytes]:
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
    return {text(name, "files"): bytes(content) for name, content in (files or {}).items()}


def _control(failed: str, verb: str, *arguments: Any) -> Any:
    try:
        return runtime.current().control(verb, *arguments)
    except TritonModelException as error:
        raise TritonModelException(f"{failed}: {error}") from error
