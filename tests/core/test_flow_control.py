"""Flow control: how many unread responses may be sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.core.flow_control import Credit, Window


def test_one_response_is_always_allowed() -> None:
    credit = Credit(Window(1, 1))
    left = [credit.left]
    credit.spend(1 << 30)
    left.append(credit.left)
    credit.replenish(1)
    left.append(credit.left)
    assert left == [True, False, True]


def test_a_waiting_sender_resumes_when_half_of_the_window_is_free() -> None:
    credit = Credit(Window(4, 1000))
    for _ in range(4):
        credit.spend(10)
    told = []
    for _ in range(4):
        told.append(credit.plenty)
        credit.replenish(1)
    assert told == [False, False, True, True]


def test_half_of_the_bytes_must_be_free_as_well() -> None:
    credit = Credit(Window(100, 1000))
    credit.spend(400)
    credit.spend(400)
    assert not credit.plenty
    credit.replenish(1)
    assert credit.plenty


@given(st.lists(st.integers(0, 200), max_size=30), st.integers(1, 8), st.integers(1, 300))
def test_a_window_is_never_exceeded_and_never_stuck(
    sizes: list[int], responses: int, most: int
) -> None:
    credit = Credit(Window(responses, most))
    waiting: list[int] = []
    for size in sizes:
        if not credit.left:
            while not credit.plenty:
                waiting.pop(0)
                credit.replenish(1)
        assert not waiting or (len(waiting) < responses and sum(waiting) < most)
        credit.spend(size)
        waiting.append(size)


@pytest.mark.contract("GP-25")
def test_bytes_are_counted() -> None:
    credit = Credit(Window(responses=9, size=100))
    credit.spend(60)
    credit.spend(60)
    assert not credit.left
    credit.replenish(1)
    assert credit.left


def test_word_of_more_than_was_sent_is_no_credit() -> None:
    credit = Credit(Window(responses=1))
    credit.replenish(5)
    credit.spend(1)
    assert not credit.left


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (-1, 1)])
def test_empty_windows_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ConfigError):
        Window(*sizes)


def test_what_was_not_sent_after_all_takes_no_room() -> None:
    credit = Credit(Window(1, 10))
    credit.spend(20)
    credit.refund()
    assert credit.left
    assert credit.plenty
