"""The best variant beside the original once more."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_client.perf.gate import Limit
from penstock_client.tune.check import checked
from penstock_client.tune.choice import Aims, objective

_AIMS = Aims((objective("throughput"),), (Limit("latency_ms.p99", None, 20.0),))


def _figures(rate: float, p99: float = 10.0) -> dict[str, Any]:
    return {
        "requests": 10,
        "failed": 0,
        "throughput": rate,
        "inferences_per_second": rate,
        "latency_ms": {"p50": p99, "p95": p99, "p99": p99},
        "server": {},
    }


@pytest.mark.parametrize(
    ("rates", "gain", "is_confirmed"),
    [
        ([(120, 100), (120, 100), (120, 100)], 1.2, True),
        ([(150, 100), (90, 100), (74, 100)], 1.0, False),
        ([(100, 100), (101, 100), (102, 100)], 1.01, False),
        ([], None, False),
    ],
)
def test_a_gain_has_to_last(
    rates: list[tuple[float, float]], gain: float | None, is_confirmed: bool
) -> None:
    check = checked([(_figures(one), _figures(other)) for one, other in rates], _AIMS)
    assert check.gain == (None if gain is None else pytest.approx(gain, abs=0.01))
    assert check.is_confirmed == is_confirmed


def test_limits_have_to_be_kept_in_most_rounds() -> None:
    original = _figures(100)
    late, timely = _figures(200, 25.0), _figures(200)
    once = checked([(late, original), (timely, original), (timely, original)], _AIMS)
    twice = checked([(late, original), (late, original), (timely, original)], _AIMS)
    assert (once.broken, once.is_confirmed) == (1, True)
    assert (twice.broken, twice.is_confirmed) == (2, False)


def test_nothing_to_compare_with_is_no_objection() -> None:
    """Where the original breaks the limits, keeping them is the gain."""
    check = checked([(_figures(50), _figures(100, 25.0))] * 3, _AIMS)
    assert check.gain is None
    assert check.is_confirmed
