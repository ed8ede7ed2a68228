"""Which texts of a batch run together, so that little time is spent on padding."""

from __future__ import annotations

import numpy as np

from penstock.core.tensor import Array

RUN_COST = 32
"""What a run costs beside its tokens, in tokens."""


def buckets(lengths: Array) -> list[Array]:
    """Places of the texts that share a run, run by run; the sum of the costs is the least."""
    rows = len(lengths)
    padding = rows * int(lengths.max(initial=0)) - int(lengths.sum())
    if padding <= RUN_COST:
        return [np.arange(rows)]
    order = np.argsort(lengths, kind="stable")
    starts = _starts(lengths[order])
    return [order[start:end] for start, end in zip(starts, [*starts[1:], rows], strict=True)]


def _starts(lengths: Array) -> list[int]:
    """Where the cheapest division of rising lengths begins its parts."""
    rows = len(lengths)
    cost = np.zeros(rows + 1)
    begin = np.zeros(rows + 1, np.int64)
    for end in range(1, rows + 1):
        costs = cost[:end] + RUN_COST + np.arange(end, 0, -1) * lengths[end - 1]
        begin[end] = costs.argmin()
        cost[end] = costs[begin[end]]
    starts = []
    while rows:
        rows = int(begin[rows])
        starts.append(rows)
    return starts[::-1]
