"""How to start the processes of a model: from its backend and its configuration."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from penstock.core.backend import Backend
from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError
from penstock.core.flow_control import Window
from penstock.hosting.parent.child import ProcessSpec

_AHEAD = 16
"""Batches that a lone instance of a quick model may have at once."""


def process_spec(
    backend: type[Backend], config: ModelConfig, interpreter: str | None
) -> ProcessSpec:
    """How to start the model's processes."""
    names = dict.fromkeys(("penstock", backend.__module__.partition(".")[0]))
    return ProcessSpec(
        target=f"{backend.__module__}:{backend.__qualname__}",
        serial=backend.serial,
        packages=tuple(_package_directory(name) for name in names),
        python=interpreter or sys.executable,
        main=backend.process_main,
        execution_timeout=_seconds(config, "penstock.execution_timeout_seconds"),
        ahead=_ahead(config),
        window=_window(backend, config),
        private_tmp=backend.private_tmp,
    )


def _ahead(config: ModelConfig) -> int:
    """Batches a process may have at once: several only where nobody is the worse for it.

    A batcher forms larger batches while it waits, another instance may be free first, and what
    an instance holds is given back when its batch is done.
    """
    instances = sum(group.count * max(len(group.gpus), 1) for group in config.instance_group)
    groups = config.instance_group
    batches = config.dynamic_batching is not None or config.sequence_batching is not None
    limited = any(group.rate_limiter is not None for group in groups)
    return 1 if batches or limited or instances > 1 else _AHEAD


def _window(backend: type[Backend], config: ModelConfig) -> Window:
    """How far responses go ahead of their reader: `RESPONSES` or `RESPONSES,BYTES`."""
    text = config.parameter("penstock.response_window")
    if text is None:
        return backend.window
    try:
        return Window(*map(int, text.split(",")))
    except (ValueError, TypeError, ConfigError) as error:
        raise ConfigError(
            "parameter 'penstock.response_window' must be a number of responses above 0, with or"
            f" without a number of bytes behind a comma, got '{text}'"
        ) from error


def _seconds(config: ModelConfig, name: str) -> float | None:
    """A parameter in seconds, above zero."""
    text = config.parameter(name)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0.0:
        raise ConfigError(f"parameter '{name}' must be a number of seconds above 0, got '{text}'")
    return seconds


def _package_directory(package: str) -> Path:
    """Where a package lies, for a process to import it from there."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
