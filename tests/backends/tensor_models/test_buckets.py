"""Bucketing of texts by length."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_backends.tensor_models.text_model import buckets

COST = 32


def _cost(lengths: list[int], parts: list[list[int]]) -> int:
    return sum(COST + len(part) * max(lengths[at] for at in part) for part in parts)


def _divided(lengths: list[int]) -> list[list[int]]:
    return [part.tolist() for part in buckets(np.array(lengths, np.int64), COST)]


@pytest.mark.parametrize("lengths", [[], [7], [12, 12, 12], [12, 13, 11, 12]])
def test_equal_texts_run_together_in_their_order(lengths: list[int]) -> None:
    assert _divided(lengths) == [list(range(len(lengths)))]


def test_a_long_text_among_short_ones_runs_alone() -> None:
    assert _divided([12, 12, 96, 12, 12]) == [[0, 1, 3, 4], [2]]


def test_a_dear_run_keeps_all_together() -> None:
    (part,) = buckets(np.array([12, 12, 96, 12]), 10_000)
    assert part.tolist() == [0, 1, 2, 3]


@given(st.lists(st.integers(0, 200), min_size=1, max_size=9))
def test_every_text_runs_once_and_no_division_is_cheaper(lengths: list[int]) -> None:
    parts = _divided(lengths)
    assert sorted(at for part in parts for at in part) == list(range(len(lengths)))
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    divisions = [
        [order[a:b] for a, b in zip((0, *cuts), (*cuts, len(order)), strict=True)]
        for size in range(len(lengths))
        for cuts in combinations(range(1, len(lengths)), size)
    ]
    cheapest = min(_cost(lengths, division) for division in divisions)
    # One run in the order of arrival is taken when it costs at most one run more.
    assert _cost(lengths, parts) <= cheapest + (COST if len(parts) == 1 else 0)
