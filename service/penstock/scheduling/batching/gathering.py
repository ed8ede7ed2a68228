"""Batch gathering: a short delay after an execution, for clients that were just answered."""

from __future__ import annotations

from math import inf

from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError

GATHER = "penstock.gather_percent"
_MOST = 100


class Gathering:
    """Delays a batch that could start at once, so that batches do not stay split.

    Clients in a closed loop are answered together and send their next requests together, a moment
    later. A batch that starts in between has few rows, and the one after it the rest; so it goes
    on. Until as many requests wait as were just answered and waited then, a batch is delayed by
    at most `share` of the time that the last execution took.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._delay = 0.0
        self._until = -inf
        self._expected = 0

    def executed(self, begun: float, now: float, requests: int, waiting: int) -> None:
        """Record an execution: `requests` ended `now`, `waiting` are queued; in seconds."""
        self._delay = self._share * (now - begun)
        self._until = now + self._delay
        self._expected = requests + waiting

    def answered(self, now: float) -> None:
        """The clients of the last execution have their answers: the delay begins `now`, in seconds.

        Answers that an application writes, such as JSON with embeddings, take longer to leave than
        their clients take to come back.
        """
        self._until = now + self._delay

    def due(self, now: float, waiting: int) -> float:
        """Time to execute `waiting` requests that do not fill a batch; `-inf` for at once."""
        if now >= self._until or waiting >= self._expected:
            return -inf
        return self._until


def gather_share(config: ModelConfig) -> float:
    """The share that the configuration sets, 0 for none; raises `ConfigError`."""
    text = config.parameter(GATHER)
    if text is None:
        return 0.0
    if config.dynamic_batching is None:
        raise ConfigError(f"parameter '{GATHER}' needs dynamic_batching")
    if not (text.isascii() and text.isdecimal() and int(text) <= _MOST):
        raise ConfigError(f"parameter '{GATHER}' must be a number from 0 to {_MOST}, got '{text}'")
    return int(text) / 100
