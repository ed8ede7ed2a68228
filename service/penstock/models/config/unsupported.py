"""Fields of a configuration that this version does not support; such models are refused."""

from __future__ import annotations

from penstock.core.backend import Backend
from penstock.core.config import ConfigPart, Field, ModelConfig, fields_of
from penstock.core.errors import UnsupportedError

UNSUPPORTED = (
    "input.is_shape_tensor",
    "input.is_non_linear_format_io",
    "output.is_shape_tensor",
    "output.is_non_linear_format_io",
    "cc_model_filenames",
    "model_operations",
    "model_repository_agents",
)
"""Paths of fields; a line goes when its field is implemented."""


def refuse_unsupported(config: ModelConfig) -> None:
    """Raise `UnsupportedError` for the first unsupported field that is set."""
    for path in UNSUPPORTED:
        if is_given(config, path):
            raise UnsupportedError(
                f"model '{config.name}': field '{path}' "
                "is not supported by this version of Penstock"
            )


def refuse_batch_tensors(config: ModelConfig, backend: type[Backend]) -> None:
    """Raise `UnsupportedError` for batch inputs and outputs if the backend has none (C-18)."""
    if backend.batch_tensors:
        return
    for path in ("batch_input", "batch_output"):
        if is_given(config, path):
            raise UnsupportedError(
                f"model '{config.name}': field '{path}' is not supported by backend"
                f" '{config.backend}'"
            )


def is_given(config: ModelConfig, path: str) -> bool:
    """Whether any field at `path`, also in lists and maps, differs from its default."""
    *parents, leaf = path.split(".")
    parts: list[ConfigPart] = [config]
    for name in parents:
        parts = [value for part in parts for value in _field(part, name).values(part)]
    return any(_differs(part, leaf) for part in parts)


def _differs(part: ConfigPart, name: str) -> bool:
    field = _field(part, name)
    return bool(getattr(part, field.attribute) != field.default)


def _field(part: ConfigPart, name: str) -> Field:
    return next(field for field in fields_of(type(part)) if field.name == name)
