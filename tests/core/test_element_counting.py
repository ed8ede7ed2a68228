"""Counting of BYTES elements: the same number in any number of steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequestError
from penstock.core.request_limits import elements_in
from penstock.core.tensor import count_elements, count_in_steps, decode_elements, encode_elements


def steps(data: bytes, most: int | None = None) -> int:
    return 1 + sum(1 for _ in count_in_steps(data, most=most))


@given(
    st.lists(st.binary(max_size=6), max_size=8),
    st.integers(1, 3000),
    st.binary(max_size=9),
)
def test_count_and_errors_are_those_of_decoding(
    elements: list[bytes], times: int, end: bytes
) -> None:
    data = encode_elements(elements * times) + end
    assert outcome(lambda: count_elements(data, " here")) == outcome(
        lambda: len(decode_elements(data, " here"))
    )


def outcome(counted: Callable[[], int]) -> int | tuple[type[Exception], str]:
    try:
        return counted()
    except InvalidRequestError as error:
        return type(error), error.message


@pytest.mark.parametrize("element", [b"", b"abc"])
def test_elements_of_one_length_are_counted_by_slices(element: bytes) -> None:
    data = encode_elements([element] * 100_000)
    assert count_elements(data) == 100_000
    assert steps(data) == 5


def test_counting_ends_behind_the_most() -> None:
    data = encode_elements([b""] * 1_000_000)
    assert count_elements(data, most=40_000) == 40_001
    assert steps(data, most=40_000) == 3


def test_other_elements_take_steps_of_4096() -> None:
    assert steps(encode_elements([b"a", b""] * 20_000)) == 10


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ([], 1),
        ([3, 4], 12),
        ([3, 0, 4], 0),
        ([3, -1], 0),
        ([1 << 62] * 1000, 101),
        ([1] * 2000, 0),
        ([101], 101),
        ([100], 100),
    ],
)
def test_elements_of_a_shape_are_multiplied_up_to_a_bound(shape: list[int], count: int) -> None:
    assert elements_in(shape, 100) == count
