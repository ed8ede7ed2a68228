"""Quantiles over a sliding window of about a minute."""

from __future__ import annotations

from math import ceil, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.summary import SLOT_SECONDS, SLOTS, SlidingSummary

pytestmark = pytest.mark.contract("ME-16")


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_nothing_has_no_quantiles() -> None:
    assert isnan(SlidingSummary().quantiles([0.5])[0])


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=60), st.floats(0, 1))
def test_the_rank_is_exact_and_the_number_nearly(numbers: list[int], quantile: float) -> None:
    summary = SlidingSummary()
    for number in numbers:
        summary.add(number)
    exact = sorted(numbers)[max(ceil(quantile * len(numbers)), 1) - 1]
    assert summary.quantiles([quantile])[0] == pytest.approx(exact, rel=1 / 256, abs=0)


@given(st.lists(st.integers(0, 255), min_size=1))
def test_small_numbers_are_exact(numbers: list[int]) -> None:
    summary = SlidingSummary()
    for number in numbers:
        summary.add(number)
    assert summary.quantiles([0, 1]) == [min(numbers), max(numbers)]


def test_observations_expire_after_a_minute() -> None:
    clock = Clock()
    summary = SlidingSummary(clock)
    summary.add(7)
    clock.now += SLOT_SECONDS * (SLOTS - 1)
    summary.add(9)
    assert summary.quantiles([0, 1]) == [7, 9]
    clock.now += SLOT_SECONDS
    assert summary.quantiles([0, 1]) == [9, 9]


def test_a_long_pause_forgets_everything() -> None:
    clock = Clock()
    summary = SlidingSummary(clock)
    summary.add(7)
    clock.now += 1e6
    assert isnan(summary.quantiles([0.5])[0])
    summary.add(8)
    assert summary.quantiles([0.5]) == [8]
