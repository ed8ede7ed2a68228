"""Two servers in turns, and the ratios of their figures."""

from __future__ import annotations

from math import exp, log, sqrt
from statistics import stdev
from typing import Any

import pytest

from penstock_client.perf.compare import compare, comparison, plain


def figures(throughput: float, **more: Any) -> dict[str, Any]:
    return {"throughput": throughput, "server": {}, **more}


def test_servers_take_turns_and_the_order_alternates() -> None:
    asked: list[int] = []

    def measure(side: int) -> dict[str, Any]:
        asked.append(side)
        return figures(len(asked))

    done = compare(measure, 3)
    assert asked == [0, 1, 1, 0, 0, 1]
    assert [(a["throughput"], b["throughput"]) for a, b in done] == [(1, 2), (4, 3), (5, 6)]


def test_a_round_that_was_cut_short_does_not_count() -> None:
    left = [figures(1), figures(2), figures(3)]
    assert len(compare(lambda _: left.pop(0) if left else None, 5)) == 1


def test_figures_are_compared_by_name() -> None:
    told = plain(
        figures(
            1.0,
            goodput=2.0,
            tokens_per_second=3.0,
            responses_per_second=None,
            latency_ms={"p50": 4.0, "p95": 5.0, "p99": 6.0, "p90": 9.0},
            ttft_ms=None,
            gap_ms={"p99": 7.0},
            server={"cpu_us_per_request": 8.0},
        )
    )
    assert told == {
        "throughput": 1.0,
        "goodput": 2.0,
        "tokens_per_second": 3.0,
        "latency_p50_ms": 4.0,
        "latency_p95_ms": 5.0,
        "latency_p99_ms": 6.0,
        "gap_p99_ms": 7.0,
        "server_cpu_us_per_request": 8.0,
    }


def test_one_round_has_a_ratio_and_no_bounds() -> None:
    told = comparison([(figures(8.0), figures(2.0))], ["a:1", "b:1"])
    assert (told["a"], told["b"], told["rounds"]) == (
        "a:1",
        "b:1",
        [{"a": {"throughput": 8.0}, "b": {"throughput": 2.0}}],
    )
    assert told["figures"] == {
        "throughput": {
            "a": 8.0,
            "b": 2.0,
            "low": None,
            "high": None,
            "ratio": pytest.approx(4.0),
        }
    }
    assert comparison([], ["a", "b"])["figures"] == {}


@pytest.mark.parametrize(("rounds", "student"), [(2, 12.71), (3, 4.30), (16, 2.13), (17, 2.0)])
def test_bounds_are_those_of_student_s_distribution(rounds: int, student: float) -> None:
    pairs = [(figures(4.0 if n % 2 else 1.0), figures(1.0)) for n in range(rounds)]
    told = comparison(pairs, ["a", "b"])["figures"]["throughput"]
    logs = [log(4.0) if n % 2 else 0.0 for n in range(rounds)]
    middle, wide = sum(logs) / rounds, student * stdev(logs) / sqrt(rounds)
    assert told["ratio"] == pytest.approx(exp(middle))
    assert (told["low"], told["high"]) == pytest.approx((exp(middle - wide), exp(middle + wide)))


def test_what_one_server_has_not_is_not_compared() -> None:
    pairs = [(figures(1.0, goodput=1.0), figures(0.0)), (figures(2.0), figures(4.0))]
    told = comparison(pairs, ["a", "b"])["figures"]
    assert told.keys() == {"throughput"}
    assert told["throughput"]["ratio"] == pytest.approx(0.5)
