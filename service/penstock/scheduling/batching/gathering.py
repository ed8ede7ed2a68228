"""Waiting a moment, after an execution, for those whose answers have just left."""

from __future__ import annotations

from math import inf

from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError

GATHER = "penstock.gather_percent"
_MOST = 100


class Gathering:
    """When a batch that could leave at once should, so that batches do not fall apart.

    Clients that call again and again are answered together and come back together, a moment
    later. Whoever begins the next batch in between has few rows in it, and the batch after that
    the rest; so it goes on. Until as many wait as were just answered and waited then, a batch waits
    for at most `share` of the time that the last execution took.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._until = -inf
        self._expected = 0

    def executed(self, begun: float, now: float, requests: int, waiting: int) -> None:
        """So many requests were answered `now`, and so many wait; times are in seconds."""
        self._until = now + self._share * (now - begun)
        self._expected = requests + waiting

    def due(self, now: float, waiting: int) -> float:
        """When those who wait should leave, if they fill no batch; `-inf` at once."""
        if now >= self._until or waiting >= self._expected:
            return -inf
        return self._until


def gather_share(config: ModelConfig) -> float:
    """What the model's configuration says, 0 for not at all; raises `ConfigError`."""
    text = config.parameter(GATHER)
    if text is None:
        return 0.0
    if config.dynamic_batching is None:
        raise ConfigError(f"parameter '{GATHER}' needs dynamic_batching")
    if not (text.isascii() and text.isdecimal() and int(text) <= _MOST):
        raise ConfigError(f"parameter '{GATHER}' must be a number from 0 to {_MOST}, got '{text}'")
    return int(text) / 100
