"""Searches: what they measure, in which order, and where they end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.tune.choice import Standing
from penstock_client.tune.errors import TuneError
from penstock_client.tune.options import Trials
from penstock_client.tune.optuna_search import OptunaSearch
from penstock_client.tune.search import BruteSearch, QuickSearch, Search, is_better
from penstock_client.tune.space import UNCHANGED, Dimension, Space, Variant

Score = Callable[[Variant], float]


def _walk(search: Search, score: Score, most: int = 10_000) -> dict[Variant, Standing]:
    """All that a search measures where a variant has this throughput."""
    found: dict[Variant, Standing] = {}
    while (variant := search.next(found)) is not None:
        assert variant not in found
        found[variant] = Standing(2, log(score(variant)))
        assert len(found) <= most
    return found


_spaces = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), max_size=3).map(
    lambda sizes: Space(
        [
            Dimension(f"d{number}", tuple(range(size)), original)
            for number, (size, original) in enumerate(sizes)
        ]
    )
)


@given(_spaces)
def test_brute_force_measures_every_variant_once_and_the_original_first(space: Space) -> None:
    measured = list(_walk(BruteSearch(space), lambda _: 1.0))
    assert measured == list(space)
    assert measured[0] == space.start


@given(_spaces)
def test_the_size_of_a_space_is_the_number_of_its_variants(space: Space) -> None:
    assert space.size == len(list(space))


def test_a_space_too_large_to_be_walked_has_a_size() -> None:
    space = Space([Dimension(f"d{number}", tuple(range(10)), 3) for number in range(12)])
    assert space.size == 10**12


@given(_spaces, st.data())
def test_a_climb_ends_where_no_neighbour_is_better(space: Space, data: st.DataObject) -> None:
    known: dict[Variant, float] = {}

    def score(variant: Variant) -> float:
        if variant not in known:
            known[variant] = data.draw(st.floats(1, 100))
        return known[variant]

    measured = _walk(QuickSearch(space), score)
    top = max(measured, key=measured.__getitem__)
    for dimension, each in enumerate(space.dimensions):
        for at in each.steps(top[dimension]):
            neighbour = space.neighbour(top, dimension, at)
            assert not is_better(measured.get(neighbour, measured[top]), measured[top])


@given(_spaces, st.data())
def test_a_climb_finds_the_only_summit(space: Space, data: st.DataObject) -> None:
    summit = [data.draw(st.integers(0, len(each.values) - 1)) for each in space.dimensions]

    def score(variant: Variant) -> float:
        values = (each.value(at) for each, at in zip(space.dimensions, variant, strict=True))
        away: int = sum(abs(v - s) for v, s in zip(values, summit, strict=True))
        return float(2**-away)

    measured = _walk(QuickSearch(space), score)
    assert max(score(each) for each in measured) == 1.0


@given(_spaces, st.data())
def test_a_stopped_climb_goes_on_where_it_was(space: Space, data: st.DataObject) -> None:
    """A search has no memory but the measurements, in whatever order they come back."""
    scores = st.fixed_dictionaries({each: st.floats(1, 100) for each in _all(space)})
    known = data.draw(scores)
    whole = _walk(QuickSearch(space), known.__getitem__)
    kept = dict(list(whole.items())[: data.draw(st.integers(0, len(whole)))])
    assert QuickSearch(space).next(kept) == next((v for v in whole if v not in kept), None)


def _all(space: Space) -> list[Variant]:
    """Every combination that a climb may come to."""
    found: list[Variant] = [()]
    for each in space.dimensions:
        numbers = range(min(0, each.start), len(each.values))
        found = [(*one, number) for one in found for number in numbers]
    return found


def test_a_climb_leaves_settings_alone_that_bring_nothing() -> None:
    space = Space([Dimension("instances", (1, 2, 3, 4, 5), 1)])
    measured = _walk(QuickSearch(space), lambda variant: 100.0 + variant[0])
    assert list(measured) == [(0,), (1,)]


def test_the_way_from_a_value_between_goes_to_both_sides() -> None:
    dimension = Dimension("max_batch_size", (1, 8, 32), 16)
    assert list(dimension.steps(UNCHANGED)) == [2, 1]


def test_settings_without_an_order_are_tried_from_the_first() -> None:
    dimension = Dimension("queue_delay", ("off", 100), None)
    assert list(dimension.steps(UNCHANGED)) == [0]


@pytest.mark.slow
@pytest.mark.contract("MA-07")
def test_optuna_tries_as_many_as_it_may_and_finds_the_summit_of_a_slope() -> None:
    space = Space([Dimension("a", tuple(range(6)), 0), Dimension("b", tuple(range(6)), 9)])
    trials = Trials(least=5, most=20, patience=20)
    measured = _walk(OptunaSearch(space, trials), lambda v: 3.0 + v[0] * 3 + v[1])
    assert len(measured) == 20
    assert next(iter(measured)) == space.start
    assert max(measured, key=measured.__getitem__)[0] >= 4


@pytest.mark.contract("MA-07")
def test_optuna_ends_early_without_gain() -> None:
    space = Space([Dimension("a", tuple(range(30)), 0)])
    measured = _walk(OptunaSearch(space, Trials(patience=4)), lambda _: 1.0)
    assert len(measured) == 5


def test_optuna_proposes_the_same_after_a_stop() -> None:
    space = Space([Dimension("a", tuple(range(20)), 0)])
    whole = list(_walk(OptunaSearch(space, Trials()), lambda v: 1.0 + v[0]).items())
    for count in (1, 5, 9):
        assert OptunaSearch(space, Trials()).next(dict(whole[:count])) == whole[count][0]


def test_without_optuna_the_way_to_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(TuneError, match=r"pip install 'penstock-client\[tune\]'"):
        OptunaSearch(Space([]), Trials())


def test_a_small_space_bounds_optunas_trials() -> None:
    assert Trials().bounds(3) == (3, 3)
    assert Trials().bounds(1000) == (50, 100)
