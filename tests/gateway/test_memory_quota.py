"""A quota of memory: what is held, and who waits."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.memory_quota import MemoryQuota, Share


def _nothing() -> None:
    """Who asks looks by itself."""


def _ask(quota: MemoryQuota, *sizes: int) -> list[Share]:
    return [quota.ask(size, _nothing) for size in sizes]


def test_large_share_is_not_passed_by_small_ones() -> None:
    first, large, small = _ask(MemoryQuota(10), 6, 8, 1)
    assert (first.held, large.held, small.held) == (True, False, False)
    first.release()
    assert (large.held, small.held) == (True, True)


def test_what_a_share_needs_less_goes_to_the_next() -> None:
    first, second = _ask(MemoryQuota(10), 10, 4)
    first.shrink(7)
    assert not second.held
    first.shrink(6)
    assert second.held


def test_who_leaves_the_line_lets_those_behind_pass() -> None:
    _, large, small = _ask(MemoryQuota(10), 6, 8, 4)
    large.release()
    assert small.held


def test_share_is_given_back_once() -> None:
    quota = MemoryQuota(10)
    (first,) = _ask(quota, 10)
    first.release()
    first.release()
    second, third = _ask(quota, 10, 1)
    assert (second.held, third.held) == (True, False)


_STEPS = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 20), st.booleans()), max_size=60)


@given(_STEPS)
def test_no_more_is_held_than_there_is_and_all_get_their_turn(
    steps: list[tuple[int, int, bool]],
) -> None:
    quota, shares, granted = MemoryQuota(10), list[Share](), list[int]()
    for number, (size, which, asks) in enumerate(steps):
        if asks or not shares:
            shares.append(quota.ask(size, partial(granted.append, number)))
        else:
            shares.pop(which % len(shares)).release()
        assert sum(share.size for share in shares if share.held) <= 10
    assert granted == sorted(granted)
    while shares:
        assert shares[0].held
        shares.pop(0).release()
