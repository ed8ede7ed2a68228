"""`Histogram`: counts observations in buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import inf


class Histogram:
    """Counts each observation in the first bucket whose upper bound it does not exceed."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = (*bounds, inf)
        self.total = 0.0
        self._counts = [0] * len(self.bounds)

    def observe(self, number: float) -> None:
        """Count an observation."""
        self._counts[bisect_left(self.bounds, number)] += 1
        self.total += number

    @property
    def buckets(self) -> tuple[tuple[float, int], ...]:
        """Each upper bound with the cumulative count of observations; the last bound is `inf`."""
        return tuple(zip(self.bounds, accumulate(self._counts), strict=True))
