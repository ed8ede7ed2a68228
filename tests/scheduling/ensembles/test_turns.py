"""Responses leave in the order of their waves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fakes import make_response, mark
from penstock.scheduling.ensembles.calls import MOST_WAVES, ReorderBuffer


def test_a_response_waits_for_those_before_it() -> None:
    turns = ReorderBuffer()
    first, second = turns.give(), turns.give()
    assert turns.put(second, make_response("b")) == []
    assert [mark(r) for r in turns.put(first, make_response("a"))] == ["a", "b"]


def test_a_wave_without_a_response_holds_nobody_up() -> None:
    turns = ReorderBuffer()
    first, second = turns.give(), turns.give()
    assert turns.put(first, None) == []
    assert [mark(r) for r in turns.put(second, make_response("b"))] == ["b"]


def test_so_many_waves_are_enough() -> None:
    turns = ReorderBuffer()
    numbers = [turns.give() for _ in range(MOST_WAVES)]
    assert turns.full
    turns.put(numbers[1], None)
    assert turns.full  # it waits for the first
    turns.put(numbers[0], None)
    assert not turns.full


@given(st.permutations(range(20)), st.sets(st.integers(0, 19)))
def test_whatever_the_order_each_leaves_once_in_its_turn(order: list[int], empty: set[int]) -> None:
    turns = ReorderBuffer()
    for _ in order:
        turns.give()
    left = [
        mark(response)
        for number in order
        for response in turns.put(number, None if number in empty else make_response(number))
    ]
    assert left == [number for number in range(20) if number not in empty]
