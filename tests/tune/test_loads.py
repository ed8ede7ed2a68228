"""The loads of a variant, and when there have been enough of them."""

from __future__ import annotations

import pytest

from penstock_client.perf.load.plan import Point
from penstock_client.tune.load.loads import Load, Loads


@pytest.mark.parametrize(
    ("rates", "enough"),
    [
        ([10.0, 10.0], False),
        ([10.0, 10.0, 10.0], True),
        ([10.0, 10.0, 20.0], False),
        ([10.0, 20.0, 10.0], False),
        ([10.0, 20.0, 20.5, 20.9], True),
    ],
    ids=["too few", "no more", "more at last", "more before", "hardly more"],
)
def test_a_sweep_ends_where_neither_of_two_loads_brought_more(
    rates: list[float], enough: bool
) -> None:
    every = [Load(Point(concurrency=2**n)) for n in range(len(rates) + 1)]
    measured = {load.label: {"throughput": rate} for load, rate in zip(every, rates, strict=False)}
    left = Loads(tuple(every), sweep=True).next(measured)
    assert left == (None if enough else every[-1])
