"""The reorder buffer: responses leave in the order of their waves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fakes import make_response, mark
from penstock.scheduling.ensembles.calls import MOST_WAVES, ReorderBuffer


def test_a_response_waits_for_those_before_it() -> None:
    buffer = ReorderBuffer()
    first, second = buffer.reserve(), buffer.reserve()
    assert buffer.put(second, make_response("b")) == []
    assert [mark(r) for r in buffer.put(first, make_response("a"))] == ["a", "b"]


def test_a_wave_without_a_response_does_not_hold_up_others() -> None:
    buffer = ReorderBuffer()
    first, second = buffer.reserve(), buffer.reserve()
    assert buffer.put(first, None) == []
    assert [mark(r) for r in buffer.put(second, make_response("b"))] == ["b"]


def test_so_many_waves_are_enough() -> None:
    buffer = ReorderBuffer()
    numbers = [buffer.reserve() for _ in range(MOST_WAVES)]
    assert buffer.full
    buffer.put(numbers[1], None)
    assert buffer.full  # it waits for the first
    buffer.put(numbers[0], None)
    assert not buffer.full


@given(st.permutations(range(20)), st.sets(st.integers(0, 19)))
def test_whatever_the_order_each_leaves_once_in_its_turn(order: list[int], empty: set[int]) -> None:
    buffer = ReorderBuffer()
    for _ in order:
        buffer.reserve()
    left = [
        mark(response)
        for number in order
        for response in buffer.put(number, None if number in empty else make_response(number))
    ]
    assert left == [number for number in range(20) if number not in empty]
