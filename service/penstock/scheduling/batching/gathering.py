"""Batch gathering: a short delay after an execution, for clients that were just answered."""

from __future__ import annotations

from math import inf

from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError

GATHER = "penstock.gather_percent"
_MOST = 100
_LONGEST = 4
"""Delays in a row, each begun by a request that came."""


class Gathering:
    """Delays a batch that could start at once, so that batches do not stay split.

    Clients in a closed loop are answered together and send their next requests together, a moment
    later. A batch that starts in between has few rows, and the one after it the rest; so it goes
    on. Until as many requests wait as were just answered and waited then, a batch is delayed by
    `share` of the time that the last execution took, and anew by each request that comes, at most
    four times as long in all.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._delay = 0.0
        self._until = self._latest = -inf
        self._waiting = self._expected = 0

    def executed(self, begun: float, now: float, requests: int, waiting: int) -> None:
        """Record an execution: `requests` ended `now`, `waiting` are queued; in seconds."""
        self._delay = self._share * (now - begun)
        self._waiting = waiting
        self._expected = requests + waiting
        self.answered(now)

    def answered(self, now: float) -> None:
        """The clients of the last execution have their answers: the delay begins `now`, in seconds.

        Answers that an application writes, such as JSON with embeddings, take longer to leave than
        their clients take to come back.
        """
        self._until = now + self._delay
        self._latest = now + _LONGEST * self._delay

    def due(self, now: float, waiting: int) -> float:
        """Time to execute `waiting` requests that do not fill a batch; `-inf` for at once."""
        if waiting >= self._expected or now >= self._latest:
            return -inf
        if waiting > self._waiting:
            self._waiting = waiting
            self._until = min(now + self._delay, self._latest)
        return self._until if now < self._until else -inf


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
