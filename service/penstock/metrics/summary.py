"""`SlidingSummary`: quantiles over a sliding window of about a minute (contract ME-16)."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import ceil, nan

SLOTS = 5
SLOT_SECONDS = 12.0
_BITS = 8


class SlidingSummary:
    """Counts integers in buckets of one value each up to 255, above that of 1/128 relative width.

    The window slides by slots of 12 seconds, so it covers 48 to 60 seconds. Ranks are exact; the
    error of a quantile is at most half the width of its bucket.
    """

    __slots__ = ("_begun", "_clock", "_slots")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._slots: deque[Counter[int]] = deque([Counter()], maxlen=SLOTS)
        self._begun = clock()

    def add(self, number: int) -> None:
        """Add an observation."""
        self._advance()
        shift = max(number.bit_length() - _BITS, 0)
        self._slots[-1][(shift << _BITS) + (number >> shift)] += 1

    def quantiles(self, wanted: Sequence[float]) -> list[float]:
        """The value at each quantile, 0 to 1; `nan` without observations."""
        self._advance()
        used = [slot for slot in self._slots if slot] or [Counter()]
        counts = dict(used[0])
        for slot in used[1:]:
            for one, count in slot.items():
                counts[one] = counts.get(one, 0) + count
        classes = sorted(counts)
        ranks = list(accumulate([counts[one] for one in classes]))
        return [_at(quantile, classes, ranks) for quantile in wanted]

    def _advance(self) -> None:
        """Start the slots that are due, dropping the oldest ones."""
        passed = self._clock() - self._begun
        if passed < SLOT_SECONDS:
            return
        slots = int(passed // SLOT_SECONDS)
        self._begun += slots * SLOT_SECONDS
        self._slots.extend(Counter() for _ in range(min(slots, SLOTS)))


def _at(quantile: float, classes: list[int], ranks: list[int]) -> float:
    if not ranks:
        return nan
    rank = max(ceil(quantile * ranks[-1]), 1)
    found = classes[bisect_left(ranks, rank)]
    shift = found >> _BITS
    return ((found - (shift << _BITS)) << shift) + (1 << shift) // 2
