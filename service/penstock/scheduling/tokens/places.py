"""`Places` of an engine, and the `Reserve` of them that is kept for tenants below their share."""

from __future__ import annotations

from math import inf
from typing import Final

from penstock.scheduling.tokens.tenants import FairnessPolicy

_WINDOW: Final = 2
"""Turns of a window, for each place of the engine. What was seen is kept for one to two windows."""


class Reserve:
    """How many places are kept free: the policy's, and up to twice as many where they are missed.

    A tenant that sends its next requests when the last are answered needs as many places as it has
    had: while it reads, others would take those beyond the policy's, and it would wait for one of
    their answers. So what tenants within their share have had at once beside one above it is kept
    free for a while. That while is counted in turns, as nothing here knows a clock.
    """

    __slots__ = ("_before", "_now", "_policy", "_turns")

    def __init__(self, policy: FairnessPolicy) -> None:
        self._policy = policy
        self._now = self._before = self._turns = 0

    def seen(self, requests: int) -> None:
        """Tenants within their share have so many requests at once."""
        self._now = max(self._now, requests)

    def places(self, capacity: int, running: int) -> int:
        """The places to keep free, where `running` requests of such tenants have theirs."""
        least = self._policy.reserved(capacity)
        missed = max(self._now, self._before) - running
        return max(least, min(missed, 2 * least, capacity // 2))

    def turn(self, capacity: int) -> None:
        """A request was handed over."""
        self._turns += 1
        if self._turns >= _WINDOW * capacity:
            self._before, self._now, self._turns = self._now, 0, 0


class Places:
    """Places in the engine: all but a reserve for everyone, the reserve for tenants below a share.

    With an engine whose capacity is not known, every place is free.
    """

    __slots__ = ("_capacity", "_left", "_reserve", "_weight")

    def __init__(self, running: int, capacity: int, reserve: int, weight: float) -> None:
        self._capacity = capacity
        self._reserve = reserve
        ahead = 0 if reserve else 1  # so that a place that becomes free is taken at once
        self._left = capacity + ahead - running if capacity else inf
        self._weight = weight

    @property
    def any(self) -> bool:
        return self._left > 0

    def free_for(self, running: int, weight: float) -> bool:
        """Whether a tenant of this weight with so many running requests may have one more."""
        if self._left > self._reserve:
            return True
        if weight >= self._weight:  # it is alone: the reserve is for the next tenant
            return False
        return running < self._capacity * weight / self._weight
