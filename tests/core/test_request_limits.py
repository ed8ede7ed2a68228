"""What one request may hold, and how much of a client's text an error repeats."""

from __future__ import annotations

from collections.abc import Callable, Sized

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequestError, queue_full, request_prefix, shortened
from penstock.core.request_limits import (
    MOST_DIMENSIONS,
    MOST_PARAMETERS,
    MOST_TENSORS,
    check_dimensions,
    check_inputs,
    check_outputs,
    check_parameters,
)


def _dimensions(shape: Sized) -> None:
    check_dimensions("IN", shape)


@pytest.mark.parametrize(
    ("check", "most", "refusal"),
    [
        (_dimensions, MOST_DIMENSIONS, "input 'IN' has {} dimensions"),
        (check_parameters, MOST_PARAMETERS, "request has {} parameters"),
        (check_inputs, MOST_TENSORS, "request has {} inputs"),
        (check_outputs, MOST_TENSORS, "request has {} outputs"),
    ],
)
def test_only_more_than_the_limit_is_refused(
    check: Callable[[Sized], None], most: int, refusal: str
) -> None:
    check(range(most))
    text = refusal.format(most + 1)
    with pytest.raises(InvalidRequestError, match=rf"^{text}, which exceeds the maximum allowed"):
        check(range(most + 1))


@given(st.text(max_size=1024))
def test_a_short_text_is_repeated_whole(text: str) -> None:
    assert shortened(text) == text


def test_of_a_long_text_the_beginning_and_the_length_are_repeated() -> None:
    assert shortened("x" * 5000) == "x" * 1024 + "... (5000 characters)"
    assert len(request_prefix("x" * 5000)) < 1100
    assert len(queue_full("x" * 5000)) < 1150


@pytest.mark.contract("V-01")
def test_a_request_without_an_id_is_said_to_have_none() -> None:
    assert request_prefix("") == "[request id: <id_unknown>] "
