"""`Standing`: whether an address gets calls, and how loaded it is; knows no clock and no socket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import uniform
from typing import TypeVar

FIRST_BACKOFF, LONGEST_BACKOFF = 0.25, 15.0
"""Seconds until an address that has failed is looked at again; doubled with each failure."""

REFUSALS = 5
"""Calls that an address refuses as UNAVAILABLE, one after the other, until it gets none."""

_FRESH = 10.0
"""Seconds for which a report of the load counts."""
_MOST_WEIGHT = 3.0
"""How much a full server counts beside an idle one, whatever it reports: 1 + this."""


@dataclass(slots=True)
class Standing:
    """The standing of one address. `reason` says why it gets no calls; empty if it does.

    Times are of the caller's clock, in seconds. An address is taken for good until it has failed.
    """

    reason: str = ""
    in_flight: int = 0
    failures: int = 0
    refusals: int = 0
    utilization: float = 0.0
    reported_at: float = float("-inf")

    @property
    def up(self) -> bool:
        """Whether it gets calls."""
        return not self.reason

    def failed(self, reason: str) -> None:
        """Take it out: it could not be reached, has gone, or says that it is not ready."""
        self.reason = reason or "it has failed"
        self.failures += 1

    def refused(self, reason: str, *, others: bool) -> None:
        """Note an answer of UNAVAILABLE; many in a row take it out where there are `others`."""
        self.refusals += 1
        if others and self.refusals >= REFUSALS:
            self.refusals = 0
            self.failed(reason)

    def answered(self) -> None:
        """Note that it has answered a call."""
        self.refusals = 0

    def recovered(self) -> None:
        """Put it back: it says that it is ready."""
        self.reason = ""
        self.failures = 0

    def backoff(self) -> float:
        """Seconds until it should be looked at again; spread, since others look as well."""
        doubled = FIRST_BACKOFF * 2.0 ** min(max(self.failures - 1, 0), 10)
        return min(doubled, LONGEST_BACKOFF) * uniform(0.8, 1.2)

    def report(self, utilization: float, now: float) -> None:
        """Note the load that it reports; what is no fraction is no report."""
        if 0.0 <= utilization <= 1.0:
            self.utilization = utilization
            self.reported_at = now

    def load(self, now: float) -> float:
        """How loaded it is: calls of ours under way, weighed by what it reports of itself."""
        fresh = now - self.reported_at < _FRESH
        return (self.in_flight + 1) * (1.0 + (_MOST_WEIGHT * self.utilization if fresh else 0.0))


_SLACK = 4.0
"""How much more loaded than the idlest one an address may be until a prefix goes elsewhere."""
_TIMES = 2.0
"""The same as a multiple."""

One = TypeVar("One")


def least_loaded(
    candidates: Sequence[One], standings: Sequence[Standing], now: float, first: int
) -> One | None:
    """The least loaded of those that are up; of equals the next behind `first`, in turn."""
    found: One | None = None
    least = float("inf")
    count = len(candidates)
    for step in range(count):
        at = (first + step) % count
        if standings[at].up and (load := standings[at].load(now)) < least:
            found, least = candidates[at], load
    return found


def preferred(
    candidates: Sequence[One], standings: Sequence[Standing], now: float, order: Sequence[int]
) -> One | None:
    """The first in this order that is up and not much more loaded than the others; `None` if none
    is up.

    `order` are places of candidates, the same for calls that are to meet.
    """
    loads = {at: standings[at].load(now) for at in order if standings[at].up}
    if not loads:
        return None
    least = min(loads.values())
    bound = max(_TIMES * least, least + _SLACK)
    return candidates[next(at for at in loads if loads[at] <= bound)]
