"""Parser of `parameters` in configurations of TensorRT-LLM's models: all are text (TL-35)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from penstock.backend import ModelConfig

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

_TRUE = ("true", "1")


def is_unset(text: str) -> bool:
    """Whether a text is empty, or a variable of a template that nobody has filled in."""
    return not text or (text.startswith("${") and text.endswith("}"))


def as_bool(text: str) -> bool:
    """`true` and `1` are true, in any case; all else is false."""
    return text.lower() in _TRUE


def read_parameter(config: ModelConfig, name: str, kind: Callable[[str], Value]) -> Value | None:
    """The parameter as `kind` reads it; `None` if it is missing, unset or not readable."""
    text = config.parameter(name)
    if text is None or is_unset(text):
        return None
    try:
        return kind(text)
    except ValueError:
        logger.warning(
            "Could not read parameter '%s' with value '%s', will use default.", name, text
        )
        return None
