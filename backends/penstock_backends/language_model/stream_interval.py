"""`StreamInterval`: how often tokens leave an engine, for all of its requests together."""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

from penstock.backend import ConfigError, ModelConfig

PARAMETER = "penstock.stream_interval_ms"
"""Parameter of a model: the shortest time between two responses of a request; 0 for none."""

DEFAULT_MS = 4.0
LONGEST_MS = 10_000.0


class Pushed(Protocol):
    """A sender of responses that waits for the interval."""

    def push(self) -> None:
        """Send what there is, if it may."""


class StreamInterval:
    """Lets responses pass at most once in `seconds`, and those of all requests at the same time.

    So tokens of an engine whose steps are shorter travel several at once, with fewer messages on
    every hop. Steps that take longer notice nothing. Everything that an engine makes in one
    iteration of the event loop passes together, or waits together. What waits is pushed again when
    the interval is over, should the engine make nothing until then.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._next = 0.0
        self._open = True
        self._decided = False
        self._waiting: dict[Pushed, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def open(self) -> bool:
        """Whether responses may leave now."""
        if not self._seconds:
            return True
        if not self._decided:
            self._decide()
        return self._open

    def passes(self, pushed: Pushed) -> bool:
        """Whether a response may leave now; otherwise it is pushed when it may."""
        if self.open:
            return True
        self._waiting[pushed] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(self._next, self._push_all)
        return False

    def _decide(self) -> None:
        """Open or shut until the end of this iteration of the event loop."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._open = now >= self._next
        if self._open:
            self._next = now + self._seconds
        self._decided = True
        loop.call_soon(self._forget)

    def _forget(self) -> None:
        self._decided = False

    def _push_all(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        for pushed in waiting:
            pushed.push()


def stream_interval(config: ModelConfig) -> StreamInterval:
    """The interval that a model's configuration asks for; raises `ConfigError`."""
    text = config.parameter(PARAMETER)
    try:
        milliseconds = float(text) if text else DEFAULT_MS
    except ValueError:
        milliseconds = math.nan
    if not 0 <= milliseconds <= LONGEST_MS:
        raise ConfigError(
            f"parameter '{PARAMETER}' must be a number of milliseconds from 0 to "
            f"{LONGEST_MS:.0f}, not '{text}'"
        )
    return StreamInterval(milliseconds / 1e3)
