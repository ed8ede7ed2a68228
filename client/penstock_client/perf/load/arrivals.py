"""The times at which requests of an open loop are due."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

from penstock_client.perf.load.job import OpenLoop


def arrivals(shape: OpenLoop, start: float) -> Iterator[float]:
    """Times in order; without an end but for a list of times."""
    if shape.times:
        for turn in count() if shape.period else (0,):
            yield from (start + turn * shape.period + time for time in shape.times)
    elif shape.poisson:
        yield from _poisson(shape, start)
    else:
        gap, number = 1 / shape.rate, 0
        while True:  # by multiplication, so that errors do not add up
            yield start + (number + shape.phase) * gap
            number += 1


def _poisson(shape: OpenLoop, start: float) -> Iterator[float]:
    chance = random.Random(shape.seed)
    due = start
    while True:
        due += chance.expovariate(shape.rate)
        yield due
