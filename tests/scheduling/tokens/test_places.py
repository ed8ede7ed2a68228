"""Places of an engine, and how many of them are kept free."""

from __future__ import annotations

import pytest

from penstock.scheduling.tokens.places import Places, Reserve
from penstock.scheduling.tokens.tenants import FairnessPolicy


def _reserve(capacity: int, seen: int, *, turns: int = 0, share: float = 0.125) -> int:
    """Places that are kept where `seen` requests were there at once, `turns` turns ago."""
    reserve = Reserve(FairnessPolicy(reserve=share))
    reserve.seen(seen)
    for _ in range(turns):
        reserve.turn(capacity)
    return reserve.places(capacity, 0)


@pytest.mark.parametrize(
    ("capacity", "seen", "kept"),
    [(0, 9, 0), (1, 9, 0), (2, 9, 1), (8, 0, 1), (8, 1, 1), (8, 2, 2), (8, 9, 2), (64, 9, 9)],
)
def test_as_many_are_kept_as_were_needed_up_to_twice_the_policys(
    capacity: int, seen: int, kept: int
) -> None:
    assert _reserve(capacity, seen) == kept


@pytest.mark.parametrize("seen", [0, 9])
def test_no_reserve_stays_none(seen: int) -> None:
    assert _reserve(8, seen, share=0.0) == 0


@pytest.mark.parametrize("capacity", [3, 8, 9])
def test_no_more_than_half_are_kept(capacity: int) -> None:
    assert _reserve(capacity, 99, share=0.5) == capacity // 2


@pytest.mark.parametrize(("turns", "kept"), [(16, 2), (31, 2), (32, 1)])
def test_what_was_needed_is_kept_for_one_to_two_windows(turns: int, kept: int) -> None:
    assert _reserve(8, 2, turns=turns) == kept


def test_places_that_are_taken_are_not_kept_twice() -> None:
    reserve = Reserve(FairnessPolicy())
    reserve.seen(2)
    assert reserve.places(8, 1) == 1


def test_every_place_of_an_engine_is_free_whose_capacity_is_not_known() -> None:
    places = Places(running=1000, capacity=0, reserve=0, weight=2.0)
    assert places.any
    assert places.free_for(1000, 1.0)


@pytest.mark.parametrize(
    ("running", "of_tenant", "weight", "free"),
    [
        (5, 5, 1.0, True),  # more than the reserve is left
        (6, 5, 1.0, False),
        (6, 3, 1.0, True),  # it has less than its share
        (6, 4, 1.0, False),
        (6, 0, 2.0, False),  # it is alone
    ],
)
def test_the_reserve_is_for_tenants_below_their_share(
    running: int, of_tenant: int, weight: float, free: bool
) -> None:
    places = Places(running=running, capacity=8, reserve=2, weight=2.0)
    assert places.free_for(of_tenant, weight) is free
