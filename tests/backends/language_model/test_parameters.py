"""Sampling parameters are read field by field; errors name the parameter."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequestError
from penstock_backends.language_model import ParameterReader, read_parameters
from penstock_backends.language_model.parameters import decoded


def test_parameters_come_from_json() -> None:
    assert read_parameters('{"temperature": 0.5, "stop": ["a"]}') == {
        "temperature": 0.5,
        "stop": ["a"],
    }


def test_null_leaves_the_default() -> None:
    assert read_parameters('{"seed": null, "n": 2}') == {"n": 2}


def test_parameters_for_the_server_are_not_the_models() -> None:
    assert read_parameters({"triton_enable_empty_final_response": True, "n": 1}) == {"n": 1}


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '"x"', "1", "NaN", '{"t": NaN}', "null", "[" * 9999]
)
def test_anything_but_a_json_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="'sampling_parameters'"):
        read_parameters(text)


def test_a_text_that_takes_long_to_decode_is_refused() -> None:
    text = '{"stop_token_ids": [' + "1, " * 400_000 + "1]}"
    with pytest.raises(InvalidRequestError, match=r"has 12000[0-9]+ characters, more than 1048576"):
        read_parameters(text)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidRequestError):
        read_parameters(text)


@pytest.mark.parametrize("written", [128, "128", " 128 ", 128.0])
def test_an_integer_may_be_a_string_or_a_whole_number(written: Any) -> None:
    assert ParameterReader({"max_tokens": written}).integer("max_tokens", 16, 1) == 128


@pytest.mark.parametrize("written", ["0.5", 0.5, "5e-1"])
def test_a_number_may_be_a_string(written: Any) -> None:
    assert ParameterReader({"top_p": written}).number("top_p", 1.0) == 0.5


@pytest.mark.parametrize("written", [True, "true", "True"])
def test_a_boolean_may_be_a_string(written: Any) -> None:
    assert ParameterReader({"ignore_eos": written}).boolean("ignore_eos", False) is True


@pytest.mark.parametrize("written", ["x", "", 1.5, True, [], {}, "1" * 5000])
def test_no_integer(written: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"^sampling parameter 'n' must be an integer$"):
        ParameterReader({"n": written}).integer("n", 1)


@pytest.mark.parametrize("written", ["x", "", True, [], {}, "nan", "inf", float("nan"), 10**999])
def test_no_number(written: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"^sampling parameter 'top_p' "):
        ParameterReader({"top_p": written}).number("top_p", 1.0)


@pytest.mark.parametrize("written", ["x", 1, 0, [], ""])
def test_no_boolean(written: Any) -> None:
    with pytest.raises(InvalidRequestError, match="'ignore_eos' must be a boolean"):
        ParameterReader({"ignore_eos": written}).boolean("ignore_eos", False)


@pytest.mark.parametrize(("value", "bound"), [(0, "at least 1"), (9, "at most 8")])
def test_a_number_outside_its_range_is_refused(value: int, bound: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"'n' must be {bound}, not {value}"):
        ParameterReader({"n": value}).integer("n", 1, 1, 8)


@pytest.mark.parametrize("written", ["end", ["end"], ["end", "end"]])
def test_strings_are_one_or_several(written: Any) -> None:
    assert ParameterReader({"stop": written}).strings("stop") == ("end",)


@pytest.mark.parametrize("written", [1, [1], {"a": 1}, "", ["a", ""]])
def test_no_strings(written: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"^sampling parameter 'stop' must"):
        ParameterReader({"stop": written}).strings("stop")


@pytest.mark.parametrize("written", [1, "1", ["x"], [-1], [10]])
def test_no_token_ids(written: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"^sampling parameter 'stop_token_ids' must"):
        ParameterReader({"stop_token_ids": written}).integers("stop_token_ids", 0, 9)


@pytest.mark.parametrize("written", [[1, 5], "[1, 5]", " [1, 5]"])
def test_a_list_may_be_a_json_text(written: Any) -> None:
    """A request parameter has no other form for it."""
    reader = ParameterReader({"stop_token_ids": written})
    assert reader.integers("stop_token_ids", 0, 9) == (1, 5)


@pytest.mark.parametrize("text", ["word", "[1, 5", "[NaN]", "[" * 100_000, "[1," * 400_000])
def test_another_text_stays_what_it_is(text: str) -> None:
    assert decoded(text) == text


def test_an_unread_parameter_is_refused_by_name() -> None:
    reader = ParameterReader({"n": 1, "logit_bias": {}})
    reader.integer("n", 1)
    expected = "^sampling parameter 'logit_bias' is not supported by the toy backend$"
    with pytest.raises(InvalidRequestError, match=expected):
        reader.refuse_unread("toy")


def test_a_misspelt_parameter_is_refused_with_the_one_that_was_meant() -> None:
    reader = ParameterReader({"max_token": 3})
    reader.integer("max_tokens", 16)
    with pytest.raises(InvalidRequestError, match=r"backend; did you mean 'max_tokens'\?$"):
        reader.refuse_unread("toy")


def test_a_switch_without_effect_is_accepted_in_one_position_only() -> None:
    ParameterReader({"detokenize": True}).fixed("detokenize", True, "toy")
    with pytest.raises(InvalidRequestError, match="'detokenize' of false is not supported"):
        ParameterReader({"detokenize": False}).fixed("detokenize", True, "toy")
