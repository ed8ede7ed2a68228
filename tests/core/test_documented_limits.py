"""The limits of one request, as numbers: what the documents say, and clients rely on."""

from __future__ import annotations

import pytest

from penstock.core import http_exchange, request_limits
from penstock.core.errors import ConfigError, InvalidRequestError, shortened
from penstock.core.file_names import LONGEST_NAME, LONGEST_PART, wrong_name
from penstock.core.flow_control import WINDOW, Window
from penstock.core.nearest_name import suggestion
from penstock.core.placement import Placement, parse_cores
from penstock.core.request_limits import (
    check_dimensions,
    elements_in,
    repeated_output,
    too_many_elements,
)


def test_limits_are_these_numbers() -> None:
    limits = request_limits
    assert (
        *(1024, 4096),
        4096,
    ) == (limits.MOST_DIMENSIONS, limits.MOST_PARAMETERS, limits.MOST_TENSORS)
    assert (limits.MOST_ELEMENTS, limits.FEW_ELEMENTS) == (1_048_576, 8192)
    assert (WINDOW.responses, WINDOW.size) == (16, 65_536)
    assert (http_exchange.WINDOW.responses, http_exchange.WINDOW.size) == (64, 24_576)
    assert http_exchange.LARGEST_PIECE == 8192
    assert (LONGEST_PART, LONGEST_NAME) == (255, 1024)


def test_a_window_may_be_narrowed_and_not_widened() -> None:
    window = Window(4, 100)
    assert window.at_most(None) is window
    assert (window.at_most(2), window.at_most(9)) == (Window(2, 100), Window(4, 100))
    with pytest.raises(ConfigError) as refused:
        Window(1, 0)
    told = "a response window must allow at least 1 response and 1 byte"
    assert refused.value.message == told


@pytest.mark.parametrize(
    ("shape", "most", "count"),
    [
        ((), 5, 1),
        ((2, 3), 6, 6),
        ((2, 3), 5, 6),
        ((1 << 40, 1 << 40), 5, 6),
        ((2, 0), 5, 0),
        ((-1,), 5, 0),
        ((1,) * 1024, 5, 1),
        ((1,) * 1025, 5, 0),
    ],
)
def test_elements_are_counted_to_one_beyond_the_limit(
    shape: tuple[int, ...], most: int, count: int
) -> None:
    assert elements_in(shape, most) == count


def test_refusals_name_what_they_refuse() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        check_dimensions("IN", [1] * 1025)
    assert refused.value.message == (
        "input 'IN' has 1025 dimensions, which exceeds the maximum allowed value of 1024"
    )
    assert too_many_elements("'IN'", 9).message == (
        "input tensor 'IN' has more than 9 elements of BYTES. Use --max-bytes-elements to"
        " increase the limit."
    )
    assert repeated_output("OUT").message == "output 'OUT' is requested more than once"
    assert shortened("x" * 1025) == "x" * 1024 + "... (1025 characters)"


def test_a_suggestion_ends_an_error() -> None:
    assert suggestion("modle", ["model"], prefix="--") == "; did you mean '--model'?"
    assert suggestion("modle", ["model"]) == "; did you mean 'model'?"
    assert suggestion("xyz", ["model"]) == ""
    assert suggestion("mxyzl", ["model"], 0.3) != ""


def test_names_have_1024_bytes_and_parts_255() -> None:
    assert wrong_name("é" * 127 + "a") == ""
    assert wrong_name("é" * 128) == "a part of it has more than 255 bytes"
    fitting = "/".join(["a" * 204] * 5)  # 1,024 bytes
    assert (len(fitting), wrong_name(fitting)) == (1024, "")
    assert wrong_name(fitting + "a") == "it has more than 1024 bytes"


@pytest.mark.parametrize("text", ["1-0", "1", "-1-2", "1-2-3", "1234567-1234567", "a-b", "1 - 2"])
def test_cores_are_two_numbers_in_their_order(text: str) -> None:
    assert parse_cores("cores", "3-3") == (3, 3)
    assert parse_cores("cores", "0-123456") == (0, 123456)
    with pytest.raises(ConfigError) as refused:
        parse_cores("cores", text)
    assert refused.value.message == f"cores must be '<first>-<last>', got '{text}'"


@pytest.mark.parametrize("text", ["1024", "-1", "x", "", "1.0"])
def test_a_numa_node_is_a_number_below_1024(text: str) -> None:
    assert Placement.from_settings("p", {"numa-node": "1023"}) == Placement(None, 1023)
    with pytest.raises(ConfigError) as refused:
        Placement.from_settings("p", {"numa-node": text})
    assert refused.value.message == (
        f"host policy 'p': numa-node must be a node's number, got '{text}'"
    )
