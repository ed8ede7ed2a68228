"""Fields of a configuration that do nothing here: refused by name, or logged as without effect.

A field that would change answers is refused. A hint that nothing here makes use of, or another
backend than the model's, is logged: many configurations have them, and must load.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from penstock.core.backend import Backend
from penstock.core.config import ConfigPart, Field, ModelConfig, PinnedMemory, fields_of
from penstock.core.errors import UnsupportedError

logger = logging.getLogger(__name__)

UNSUPPORTED = ("cc_model_filenames",)
"""Paths of fields that no backend implements, but those that have them in `Traits.hints`."""

WITHOUT_EFFECT = (
    "optimization.gather_kernel_buffer_threshold",
    "sequence_batching.state.use_same_buffer_for_input_output",
    "sequence_batching.state.use_growable_memory",
)
"""Paths of hints that change no answer and that nothing here makes use of."""

HINTS = (
    "optimization.graph",
    "optimization.execution_accelerators",
    "optimization.priority",
    "optimization.cuda",
    "optimization.eager_batching",
    "model_operations",
    "instance_group.secondary_devices",
)
"""Paths of hints that only some backends make use of: those that have them in `Traits.hints`."""

_PINNED = ("input_pinned_memory", "output_pinned_memory")


def refuse_unsupported(config: ModelConfig, backend: type[Backend] | None = None) -> None:
    """Raise `UnsupportedError` for the first field that is set and that the backend has not."""
    read = backend.traits.hints if backend else frozenset()
    for path in UNSUPPORTED:
        if path not in read and is_given(config, path):
            raise UnsupportedError(
                f"model '{config.name}': field '{path}' "
                "is not supported by this version of Penstock"
            )


def refuse_batch_tensors(config: ModelConfig, backend: type[Backend]) -> None:
    """Raise `UnsupportedError` for batch inputs and outputs if the backend has none (C-18)."""
    if backend.traits.batch_tensors:
        return
    for path in ("batch_input", "batch_output"):
        if is_given(config, path):
            raise UnsupportedError(
                f"model '{config.name}': field '{path}' is not supported by backend"
                f" '{config.backend}'"
            )


def warn_without_effect(config: ModelConfig, backend: type[Backend]) -> None:
    """Log a warning that names the given fields that have no effect on this model, if any."""
    if fields := list(_without_effect(config, backend)):
        logger.warning(
            "model '%s': without effect with backend '%s': %s",
            config.name,
            config.backend,
            ", ".join(fields),
        )


def _without_effect(config: ModelConfig, backend: type[Backend]) -> Iterator[str]:
    unread = (*WITHOUT_EFFECT, *(path for path in HINTS if path not in backend.traits.hints))
    yield from (path for path in unread if is_given(config, path))
    for name in _PINNED:  # true is the default, and means where such memory can be had
        path = f"optimization.{name}"
        off = getattr(config.optimization, name, None) == PinnedMemory(enable=False)
        if off and path not in backend.traits.hints:
            yield path


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
