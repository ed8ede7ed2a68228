"""Bucketing of a batch by text length, to minimize the cost of padding."""

from __future__ import annotations

import numpy as np

from penstock.backend import Array


def buckets(lengths: Array, run_cost: int) -> list[Array]:
    """The indices of the texts of each run, at the least total cost in padded tokens.

    `lengths`, and `run_cost`, the fixed cost of a run, are in tokens.
    """
    rows = len(lengths)
    padding = rows * int(lengths.max(initial=0)) - int(lengths.sum())
    if padding <= run_cost:
        return [np.arange(rows)]
    order = np.argsort(lengths, kind="stable")
    starts = _starts(lengths[order], run_cost)
    return [order[start:end] for start, end in zip(starts, [*starts[1:], rows], strict=True)]


def _starts(lengths: Array, run_cost: int) -> list[int]:
    """The starts of the parts in the cheapest partition of ascending lengths."""
    rows = len(lengths)
    cost = np.zeros(rows + 1)
    begin = np.zeros(rows + 1, np.int64)
    for end in range(1, rows + 1):
        costs = cost[:end] + run_cost + np.arange(end, 0, -1) * lengths[end - 1]
        begin[end] = costs.argmin()
        cost[end] = costs[begin[end]]
    starts = []
    while rows:
        rows = int(begin[rows])
        starts.append(rows)
    return starts[::-1]
