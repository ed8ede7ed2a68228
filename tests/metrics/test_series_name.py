"""Names of numbers with labels of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.series_name import series_name, split_series_name


def test_labels_stand_behind_the_name() -> None:
    assert series_name("x_total", reason="full", other="") == 'x_total{reason="full"}'


@given(st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), st.text(min_size=1)))
def test_a_name_is_read_as_it_was_written(labels: dict[str, str]) -> None:
    assert split_series_name(series_name("x", **labels)) == ("x", tuple(sorted(labels.items())))


@pytest.mark.parametrize("name", ["x", "a/b c", "{", "x{y", "x}", ""])
def test_any_other_name_is_itself(name: str) -> None:
    assert split_series_name(name) == (name, ())
