"""Policies of calls, in pure code: retries, their waiting times, and hedging."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from penstock_client.client.errors import (
    ClientError,
    ConnectionLostError,
    NoServerError,
    ResourceExhaustedError,
    UnavailableError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPolicy:
    """Retries and hedging of a call. By default neither happens.

    `attempts` counts the first one. Tried again is what the server refused for now (UNAVAILABLE,
    RESOURCE_EXHAUSTED), and, with `after_loss`, what it may have executed before the connection
    ended. The waiting time doubles from `backoff` to `longest_backoff` seconds, with a random part
    (a half to the whole of it); a server's `retry-after` is waited for at least.
    `hedge_after` seconds without an answer send the same request to another address, or once more
    to the only one; the first answer counts and the other request is cancelled.
    """

    attempts: int = 1
    backoff: float = 0.1
    longest_backoff: float = 5.0
    after_loss: bool = False
    hedge_after: float | None = None

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError("attempts must be at least 1")
        if not 0 <= self.backoff <= self.longest_backoff:
            raise ValueError("backoff must be between 0 and longest_backoff")
        if self.hedge_after is not None and self.hedge_after < 0:
            raise ValueError("hedge_after must not be negative")

    def delay(
        self, attempt: int, error: ClientError, chance: Callable[[], float] = random.random
    ) -> float | None:
        """Seconds to wait after the failure of an attempt, 1 the first; `None` to give up."""
        if attempt >= self.attempts or not self._may_pass(error):
            return None
        wait = min(self.longest_backoff, self.backoff * 2.0 ** min(attempt - 1, 60))
        wait *= 0.5 + 0.5 * chance()
        if isinstance(error, ResourceExhaustedError) and error.retry_after is not None:
            wait = max(wait, error.retry_after)
        return wait

    def _may_pass(self, error: ClientError) -> bool:
        if isinstance(error, ConnectionLostError):
            return self.after_loss
        return isinstance(error, NoServerError | UnavailableError | ResourceExhaustedError)
