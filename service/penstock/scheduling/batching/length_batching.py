"""Model parameters for requests of mixed lengths: a batch's element budget, length buckets."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError

MAX_ELEMENTS = "penstock.max_batch_elements"
BUCKETS = "penstock.length_buckets"
PADDING = "penstock.padding"
_UNKNOWN_STRATEGY = "TRITON_BATCH_STRATEGY_PATH"


@dataclass(frozen=True, slots=True)
class LengthBatching:
    """Batching by length; 0 and empty mean that lengths do not count.

    `max_elements` bounds a batch; `buckets` are rising upper bounds of lengths, and the requests of
    a batch are of one bucket. `padded` says that the model gets rows of one length.
    """

    max_elements: int = 0
    buckets: tuple[int, ...] = ()
    padded: bool = True

    @classmethod
    def from_config(cls, config: ModelConfig) -> LengthBatching:
        """Read the parameters; raises `ConfigError` for invalid ones."""
        _refuse_unusable(config)
        text = config.parameter(MAX_ELEMENTS)
        ragged = any(tensor.allow_ragged_batch for tensor in config.input)
        return cls(
            max_elements=_positive(MAX_ELEMENTS, text) if text is not None else 0,
            buckets=_bounds(config.parameter(BUCKETS)),
            padded=not ragged or config.parameter(PADDING) is not None,
        )


def _refuse_unusable(config: ModelConfig) -> None:
    if config.dynamic_batching is None:
        for name in (MAX_ELEMENTS, BUCKETS):
            if config.parameter(name) is not None:
                raise ConfigError(f"parameter '{name}' needs dynamic_batching")
    if config.parameter(_UNKNOWN_STRATEGY) is not None:
        raise ConfigError(
            f"parameter '{_UNKNOWN_STRATEGY}' names a library for another server's interface, "
            f"which cannot be used here; '{MAX_ELEMENTS}' bounds batches by their elements"
        )


def _bounds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    bounds = tuple(_positive(BUCKETS, part.strip()) for part in text.split(","))
    if any(low >= high for low, high in pairwise(bounds)):
        raise ConfigError(f"parameter '{BUCKETS}' must be rising numbers, got '{text}'")
    return bounds


def _positive(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not int(text):
        raise ConfigError(f"parameter '{name}' must be a number above 0, got '{text}'")
    return int(text)
