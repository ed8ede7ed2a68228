"""Whether an address gets calls, and which one the next call gets."""

from __future__ import annotations

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_backends.remote.standing import (
    LONGEST_BACKOFF,
    REFUSALS,
    Standing,
    least_loaded,
    preferred,
)


def test_failed_address_is_out_until_it_recovers() -> None:
    standing = Standing()
    assert standing.up
    standing.failed("connection refused")
    assert (standing.up, standing.reason) == (False, "connection refused")
    standing.recovered()
    assert standing.up


def test_backoff_doubles_up_to_a_limit() -> None:
    standing = Standing()
    for failures in range(40):
        standing.failed("away")
        assert 0.8 * min(0.25 * 2**failures, LONGEST_BACKOFF) <= standing.backoff()
        assert standing.backoff() <= 1.2 * LONGEST_BACKOFF


@pytest.mark.parametrize("others", [True, False])
def test_many_refusals_in_a_row_take_it_out_where_there_are_others(others: bool) -> None:
    standing = Standing()
    for _ in range(REFUSALS - 1):
        standing.refused("queue full", others=others)
    standing.answered()
    for _ in range(REFUSALS - 1):
        standing.refused("queue full", others=others)
    assert standing.up
    standing.refused("queue full", others=others)
    assert standing.up is not others


@pytest.mark.parametrize("lie", [nan, -1.0, 1.01, 1e300])
def test_report_that_is_no_fraction_is_no_report(lie: float) -> None:
    standing = Standing()
    standing.report(lie, 0.0)
    assert standing.load(0.0) == 1.0


def test_old_report_does_not_count() -> None:
    standing = Standing()
    standing.report(1.0, 0.0)
    assert standing.load(1.0) == 4.0
    assert standing.load(60.0) == 1.0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=6), st.integers(0, 9))
def test_least_loaded_of_those_that_are_up(known: list[tuple[bool, int]], first: int) -> None:
    standings = [Standing("" if up else "away", calls) for up, calls in known]
    found = least_loaded(range(len(standings)), standings, 0.0, first)
    loads = [one.in_flight for one in standings if one.up]
    assert (found is None) is (not loads)
    if found is not None:
        assert standings[found].up
        assert standings[found].in_flight == min(loads)


def test_equals_take_turns() -> None:
    standings = [Standing(), Standing(), Standing()]
    assert [least_loaded("abc", standings, 0.0, first) for first in range(4)] == list("abca")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), min_size=1, max_size=6))
def test_what_is_preferred_is_up_and_not_far_above_the_others(
    known: list[tuple[bool, int]],
) -> None:
    standings = [Standing("" if up else "away", calls) for up, calls in known]
    found = preferred(range(len(standings)), standings, 0.0, range(len(standings)))
    loads = {at: standings[at].load(0.0) for at in range(len(standings)) if standings[at].up}
    if not loads:
        assert found is None
        return
    assert found is not None
    least = min(loads.values())
    assert loads[found] <= max(2 * least, least + 4)


def test_a_prefix_goes_elsewhere_only_where_its_address_is_busy() -> None:
    standings = [Standing(), Standing()]
    assert preferred("ab", standings, 0.0, [1, 0]) == "b"
    standings[1].in_flight = 4
    assert preferred("ab", standings, 0.0, [1, 0]) == "b"
    standings[1].in_flight = 5
    assert preferred("ab", standings, 0.0, [1, 0]) == "a"
    standings[1].in_flight, standings[1].reason = 0, "away"
    assert preferred("ab", standings, 0.0, [1, 0]) == "a"
