"""Headers that become parameters."""

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidRequestError
from penstock.header_forward import HeaderForward, header_forward

pytestmark = pytest.mark.contract("GT-17", "GT-18")

HEADERS = [("X-One", "1"), ("y-x-two", "2"), ("other", "3")]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [("^x-", ["X-One"]), ("x-", ["X-One", "y-x-two"]), ("TWO$", ["y-x-two"]), ("no", [])],
)
def test_a_pattern_matches_anywhere_whatever_the_case(pattern: str, names: list[str]) -> None:
    assert list(HeaderForward(pattern).select(HEADERS)) == names


def test_the_last_of_equal_names_counts() -> None:
    assert HeaderForward("x").select([("x", "1"), ("x", "2")]) == {"x": "2"}


def test_a_secret_is_not_forwarded_whatever_the_pattern() -> None:
    assert HeaderForward(".", ["x-ONE"]).select([("X-One", "1"), ("other", "3")]) == {"other": "3"}


def test_an_empty_pattern_forwards_nothing() -> None:
    assert header_forward("") is None


def test_a_wrong_pattern_forwards_nothing_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert header_forward("[") is None
    assert "no header matches the pattern '['" in caplog.text


@pytest.mark.contract("SEC-13")
@pytest.mark.parametrize("name", ["sequence_id", "Priority", "triton_x", "binary_data_output"])
def test_names_of_the_server_s_own_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        HeaderForward(".").select([(name, "1")])
    text = f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
    assert refused.value.message == text


def test_names_that_are_not_chosen_may_be_anything() -> None:
    assert HeaderForward("^x-").select([("priority", "1")]) == {}
