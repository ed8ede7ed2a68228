"""`Histogram`: counts observations in buckets, with an exemplar of each."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import Any

from penstock.metrics.exposition import Exemplar


class Histogram:
    """Counts each observation in the first bucket whose upper bound it does not exceed."""

    __slots__ = ("_counts", "_exemplars", "bounds", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = (*bounds, inf)
        self.total = 0.0
        self._counts = [0] * len(self.bounds)
        self._exemplars: dict[int, Exemplar] = {}

    def observe(self, number: float, trace_id: str = "") -> None:
        """Count an observation; that of a traced request becomes the exemplar of its bucket.

        `trace_id` is that of W3C, 32 hexadecimal digits.
        """
        bucket = bisect_left(self.bounds, number)
        self._counts[bucket] += 1
        self.total += number
        if trace_id:
            self._exemplars[bucket] = Exemplar(trace_id, number, time.time())

    def state(self) -> list[Any]:
        """All of it as plain values, which may be sent: for `merged`."""
        exemplars = [
            [bucket, one.trace_id, one.value, one.timestamp]
            for bucket, one in self._exemplars.items()
        ]
        return [list(self.bounds[:-1]), list(self._counts), self.total, exemplars]

    @staticmethod
    def merged(states: Sequence[Sequence[Any]]) -> Histogram:
        """The sum of histograms with the bounds of the first one; others are left out."""
        bounds = states[0][0]
        merged = Histogram(bounds)
        for _, counts, total, exemplars in (state for state in states if state[0] == bounds):
            merged._counts = [a + b for a, b in zip(merged._counts, counts, strict=True)]
            merged.total += total
            for bucket, trace_id, value, timestamp in exemplars:
                merged._exemplars[bucket] = Exemplar(trace_id, value, timestamp)
        return merged

    @property
    def buckets(self) -> tuple[tuple[float, int], ...]:
        """Each upper bound with the cumulative count of observations; the last bound is `inf`."""
        return tuple(zip(self.bounds, accumulate(self._counts), strict=True))

    @property
    def exemplars(self) -> tuple[Exemplar | None, ...]:
        """The last traced observation of each bucket; empty if no request was traced."""
        if not self._exemplars:
            return ()
        return tuple(self._exemplars.get(bucket) for bucket in range(len(self.bounds)))
