"""What a configuration may say that this version does not do yet; such models are refused."""

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
"""Fields by their path. Whoever makes one work deletes its line."""


def refuse_unsupported(config: ModelConfig) -> None:
    """Raise for the first field with a value of its own that this version does not act on."""
    for path in UNSUPPORTED:
        if is_given(config, path):
            raise UnsupportedError(
                f"model '{config.name}': field '{path}' "
                "is not supported by this version of Penstock"
            )


def refuse_batch_tensors(config: ModelConfig, backend: type[Backend]) -> None:
    """Raise for tensors that are computed for a batch where the backend computes none (C-18)."""
    if backend.batch_tensors:
        return
    for path in ("batch_input", "batch_output"):
        if is_given(config, path):
            raise UnsupportedError(
                f"model '{config.name}': field '{path}' is not supported by backend"
                f" '{config.backend}'"
            )


def is_given(config: ModelConfig, path: str) -> bool:
    """Whether any field at `path` differs from its default; lists and maps are searched through."""
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
