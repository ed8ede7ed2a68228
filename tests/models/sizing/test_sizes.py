"""Sizes as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.sizing.sizes import parsed_size, shown_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("48GiB", 48 << 30),
        ("80 GB", 80 * 10**9),
        ("1.5gib", 3 << 29),
        ("600MB", 600 * 10**6),
        ("123", 123),
        ("7B", 7),
    ],
)
def test_a_size_has_a_unit_or_is_bytes(text: str, size: int) -> None:
    assert parsed_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "GiB", "1e9", "4 8GiB", "1XB", "9" * 18 + "TiB"])
def test_what_is_no_size_has_none(text: str) -> None:
    assert parsed_size(text) is None


@given(st.integers(1, 1 << 50))
def test_what_is_shown_is_read_as_nearly_the_same(size: int) -> None:
    assert parsed_size(shown_size(size)) == pytest.approx(size, rel=0.01)


def test_sizes_are_shown_with_three_digits() -> None:
    shown = [shown_size(size) for size in (5, 2048, 100 << 20, 3 << 29, 999 << 30)]
    assert shown == ["5 B", "2.00 KiB", "100 MiB", "1.50 GiB", "999 GiB"]
