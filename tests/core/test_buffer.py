"""Buffers: their bytes, and few parts of many."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.buffer import Buffer, join_small, octets

LARGE = 8 << 10


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="<i4"),
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        np.arange(6, dtype="<f8").reshape(3, 2),
        np.empty((0, 4), "<f4"),
    ],
)
def test_a_view_of_any_shape_counts_as_bytes(array: np.ndarray[tuple[int, ...], np.dtype]) -> None:
    viewed = octets(array.data)
    assert (len(viewed), bytes(viewed)) == (array.nbytes, array.tobytes())


@pytest.mark.parametrize("buffer", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_what_is_bytes_already_stays_itself(buffer: Buffer) -> None:
    assert octets(buffer) is buffer


def test_only_small_neighbours_are_joined() -> None:
    large, small = b"L" * LARGE, b"s" * (LARGE - 1)
    parts: list[Buffer] = [b"a", b"b", large, b"c", large, large, small, b"d"]
    assert join_small(parts) == [b"ab", large, b"c", large, large, small + b"d"]
    assert join_small(parts)[1] is large
    assert join_small([b"a", large])[0] is parts[0]


@given(st.lists(st.sampled_from([0, 1, LARGE - 1, LARGE, LARGE + 1]), max_size=8))
def test_joining_changes_no_byte_and_leaves_no_two_small_neighbours(sizes: list[int]) -> None:
    parts: list[Buffer] = [bytes([65 + at]) * size for at, size in enumerate(sizes)]
    joined = join_small(parts)
    assert b"".join(joined) == b"".join(parts)
    whole = {id(part) for part in parts if len(part) >= LARGE}
    alone = [id(part) in whole for part in joined]
    assert sum(alone) == len(whole)
    assert all(one or other for one, other in pairwise(alone))
