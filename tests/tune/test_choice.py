"""Choosing among measurements: limits, objectives, and the front."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.perf.gate import Limit
from penstock_client.tune.choice import Aims, best, broken, front, objective, standing


def _figures(rate: float = 100.0, p99: float = 10.0, **others: Any) -> dict[str, Any]:
    return {
        "requests": 10,
        "failed": 0,
        "inferences_per_second": rate,
        "latency_ms": {"p99": p99},
        **others,
    }


_FASTEST = Aims((objective("throughput"),))
_BOUND = Aims((objective("throughput"),), (Limit("latency_ms.p99", None, 20.0),))


def test_the_fastest_load_is_the_best() -> None:
    assert best([_figures(100), _figures(300), _figures(200)], _FASTEST) == 1


def test_a_slower_load_that_keeps_the_limit_is_better_than_a_faster_that_does_not() -> None:
    assert best([_figures(100, 19), _figures(300, 21)], _BOUND) == 0


def test_where_none_keeps_the_limits_the_closest_is_best() -> None:
    assert best([_figures(300, 80), _figures(1, 25), _figures(100, 30)], _BOUND) == 1


def test_failed_requests_break_a_limit_of_their_own() -> None:
    figures = _figures(failed=2)
    assert not standing(figures, _FASTEST).kept
    assert broken(figures, []) == ["2 requests failed"]


def test_what_is_broken_is_said_with_both_numbers() -> None:
    limits = [Limit("latency_ms.p99", None, 5.0), Limit("inferences_per_second", 200.0, None)]
    assert broken(_figures(), limits) == [
        "latency_ms.p99 10 is over 5",
        "inferences_per_second 100 is under 200",
    ]


def test_a_limit_of_a_figure_that_was_not_measured_is_broken() -> None:
    assert broken(_figures(), [Limit("gpu_memory_bytes", None, 5.0)]) == [
        "there is no gpu_memory_bytes"
    ]


@pytest.mark.contract("MA-09")
@pytest.mark.parametrize(("weight", "chosen"), [(0.5, 1), (2.0, 0)])
def test_weights_count_relative_gains(weight: float, chosen: int) -> None:
    """Twice the throughput for twice the latency is a gain where latency weighs less."""
    aims = Aims((objective("throughput"), objective("p99", weight)))
    assert best([_figures(100, 10), _figures(200, 20)], aims) == chosen


def test_nothing_answered_is_the_worst() -> None:
    nothing = _figures() | {"requests": 0, "latency_ms": None}
    assert standing(nothing, _BOUND) < standing(_figures(1, 1e6), _BOUND)


_points = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12)


def _beats(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] >= other[0] and one[1] <= other[1] and one != other


@given(_points)
def test_the_front_has_exactly_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    found = {points[number] for number in front(points)}
    assert found == {each for each in points if not any(_beats(one, each) for one in points)}


@given(_points)
def test_the_front_rises(points: list[tuple[int, int]]) -> None:
    along = [points[number] for number in front(points)]
    assert along == sorted(set(along))


_loads = st.lists(st.tuples(st.floats(1, 1e4), st.floats(0.1, 1e3)), min_size=1, max_size=8)


@given(_loads)
def test_the_best_keeps_the_limit_if_any_does(loads: list[tuple[float, float]]) -> None:
    points = [_figures(rate, p99) for rate, p99 in loads]
    chosen = best(points, _BOUND)
    assert chosen is not None
    kept = [rate for rate, p99 in loads if p99 <= 20.0]
    if kept:
        assert loads[chosen][0] == max(kept)
    else:
        assert loads[chosen][1] == min(p99 for _, p99 in loads)
