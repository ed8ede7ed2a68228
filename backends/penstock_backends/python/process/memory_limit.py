"""How much memory a model may take: parameter `penstock.memory_limit_bytes`."""

from __future__ import annotations

import resource

from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError

_PARAMETER = "penstock.memory_limit_bytes"


def memory_limit(config: ModelConfig) -> int | None:
    """Bytes that each model process may take, `None` without a limit; raises `ConfigError`."""
    text = config.parameter(_PARAMETER)
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise ConfigError(
            f"parameter '{_PARAMETER}' must be a number of bytes above 0, got '{text}'"
        )
    return int(text)


def limit_memory(config: ModelConfig) -> None:
    """Let allocations of this process fail beyond the limit, with `MemoryError` in the model.

    What counts is memory of its own that may be written, touched or not; tensors that are shared
    with the server do not.
    """
    limit = memory_limit(config)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
