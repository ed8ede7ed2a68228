"""Numbers and names as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.top.texts import count, milliseconds, percent, printable, size


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (0.254, "0.25"), (12.34, "12.3"), (3, "3"), (1234.5, "1,234")],
)
def test_numbers_have_about_three_digits(value: float | None, text: str) -> None:
    assert count(value) == text


def test_no_number_is_unknown() -> None:
    assert count(float("nan")) == "-"


def test_sizes_have_units() -> None:
    texts = [size(value) for value in (None, 512, 3 << 20, 3.5 * (1 << 30), 5 << 50)]
    assert texts == ["-", "512 B", "3 MiB", "3.5 GiB", "5120.0 TiB"]


def test_durations_are_milliseconds_and_shares_percent() -> None:
    assert (milliseconds(0.0125), milliseconds(None)) == ("12.5", "-")
    assert (percent(0.5), percent(None)) == ("50%", "-")


@given(st.text())
def test_nothing_moves_the_cursor(text: str) -> None:
    assert printable(text).isprintable()
    assert len(printable(text)) == len(text)
