"""Memory limit of a model process: parameter `penstock.memory_limit_bytes`."""

from __future__ import annotations

import resource

from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError

_PARAMETER = "penstock.memory_limit_bytes"


def memory_limit(config: ModelConfig) -> int | None:
    """The limit of each model process in bytes, `None` without one; raises `ConfigError`."""
    text = config.parameter(_PARAMETER)
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise ConfigError(
            f"parameter '{_PARAMETER}' must be a number of bytes above 0, got '{text}'"
        )
    return int(text)


def limit_memory(config: ModelConfig) -> None:
    """Make allocations of this process fail beyond the limit: `MemoryError` in the model.

    All private writable memory counts, touched or not; memory shared with the server does not.
    """
    limit = memory_limit(config)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
