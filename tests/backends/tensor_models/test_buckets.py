"""Bucketing of texts by length."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_backends.tensor_models.text_model import RunCost, buckets

COST = 32


def _cost(lengths: list[int], parts: list[list[int]]) -> int:
    return sum(COST + len(part) * max(lengths[at] for at in part) for part in parts)


def _fit(lengths: list[int], parts: list[list[int]], most: int) -> bool:
    longest = [len(part) * max(lengths[at] for at in part) for part in parts if len(part) > 1]
    return not most or all(padded <= most for padded in longest)


def _divided(lengths: list[int], most: int = 0) -> list[list[int]]:
    return [part.tolist() for part in buckets(np.array(lengths, np.int64), RunCost(COST, most))]


@pytest.mark.parametrize("lengths", [[], [7], [12, 12, 12], [12, 13, 11, 12]])
def test_equal_texts_run_together_in_their_order(lengths: list[int]) -> None:
    assert _divided(lengths) == [list(range(len(lengths)))]


def test_a_long_text_among_short_ones_runs_alone() -> None:
    assert _divided([12, 12, 96, 12, 12]) == [[0, 1, 3, 4], [2]]


def test_a_dear_run_keeps_all_together() -> None:
    (part,) = buckets(np.array([12, 12, 96, 12]), RunCost(10_000, 0))
    assert part.tolist() == [0, 1, 2, 3]


def test_a_run_has_no_more_tokens_than_the_caches_hold() -> None:
    assert _divided([256] * 5, most=512) == [[0], [1, 2], [3, 4]]
    assert _divided([600, 600], most=512) == [[0], [1]]


@given(st.lists(st.integers(0, 200), min_size=1, max_size=9), st.sampled_from([0, 150, 400]))
def test_every_text_runs_once_and_no_division_is_cheaper(lengths: list[int], most: int) -> None:
    parts = _divided(lengths, most)
    assert sorted(at for part in parts for at in part) == list(range(len(lengths)))
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    divisions = [
        [order[a:b] for a, b in zip((0, *cuts), (*cuts, len(order)), strict=True)]
        for size in range(len(lengths))
        for cuts in combinations(range(1, len(lengths)), size)
    ]
    fitting = [each for each in divisions if _fit(lengths, each, most)]
    assert _fit(lengths, parts, most)
    cheapest = min(_cost(lengths, division) for division in fitting)
    # One run in the order of arrival is taken when it costs at most one run more.
    assert _cost(lengths, parts) <= cheapest + (COST if len(parts) == 1 else 0)
