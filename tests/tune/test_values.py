"""Values of options as users write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.tune.values import (
    delays,
    milliseconds,
    named_values,
    seconds,
    size,
    switches,
    weighted_objective,
    whole_numbers,
)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (whole_numbers, ["1-4"], (1, 2, 3, 4)),
        (whole_numbers, ["1:8:2"], (1, 3, 5, 7)),
        (whole_numbers, ["4,1", "2"], (1, 2, 4)),
        (delays, ["off", "0", "100"], ("off", 0, 100)),
        (delays, ["100,off"], ("off", 100)),
        (delays, ["off"], ("off",)),
        (switches, ["off", "on"], (False, True)),
        (milliseconds, "20ms", 20.0),
        (milliseconds, "0.5s", 500.0),
        (milliseconds, "800us", 0.8),
        (milliseconds, "7", 7.0),
        (seconds, "10m", 600.0),
        (size, "1GiB", float(1 << 30)),
        (size, "2GB", 2e9),
        (size, "512 MiB", float(512 << 20)),
        (named_values, "a=1,true,x,[4],[8,2]", ("a", (1, True, "x", [4], [8, 2]))),
    ],
)
def test_values_are_read(read: Callable[[Any], Any], text: Any, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "words"),
    [
        (whole_numbers, ["x"], "'x' is not one or more whole numbers from 1 on"),
        (whole_numbers, ["0"], "'0' is not one"),
        (whole_numbers, ["4-1"], "'4-1' is not one"),
        (whole_numbers, ["1:4:0"], "'1:4:0' is not one"),
        (delays, ["soon"], "'soon' is not one or more whole numbers from 0 on"),
        (switches, ["yes"], "'yes' is neither on nor off"),
        (milliseconds, "20kg", "'20kg' is not a time: write 20ms or 0.5s"),
        (milliseconds, "0ms", "'0ms' is not a time"),
        (size, "much", "'much' is not an amount of memory"),
        (named_values, "a=", "'a=' is not a setting with values"),
        (weighted_objective, "speed", "'speed' is not an objective: write one of throughput"),
        (weighted_objective, "p99:-1", "'p99:-1' is not an objective"),
    ],
)
def test_wrong_values_are_refused_with_what_is_right(
    read: Callable[[Any], Any], text: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        read(text)


@given(st.sets(st.integers(1, 500), min_size=1, max_size=9))
def test_any_set_of_numbers_is_read_back(numbers: set[int]) -> None:
    assert whole_numbers([",".join(map(str, numbers))]) == tuple(sorted(numbers))
