"""Requests and responses, and the versions that requests name."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import make_request, make_response
from penstock.core.errors import InternalError, InvalidRequestError
from penstock.core.request import (
    ANY_VERSION,
    InferenceRequest,
    InferenceResponse,
    TextResponse,
    parse_version,
    rows_of,
)
from penstock.core.tensor import Tensor

HUGE = 1 << 63


def _refusal(text: str) -> str:
    with pytest.raises(InvalidRequestError) as refused:
        parse_version(text)
    return refused.value.message


@pytest.mark.contract("G-32")
def test_no_version_leaves_the_choice_to_the_server() -> None:
    assert parse_version("") == ANY_VERSION


@pytest.mark.contract("G-32")
@given(st.integers(0, HUGE - 1))
def test_a_version_is_a_number(number: int) -> None:
    assert parse_version(str(number)) == number


@pytest.mark.contract("G-32")
@given(st.integers(-HUGE, -1))
def test_a_negative_version_is_refused(number: int) -> None:
    assert _refusal(str(number)) == (
        f"invalid model version specified '{number}' , version should be an integral value > 0"
    )


@pytest.mark.contract("G-32")
@pytest.mark.parametrize(
    "text",
    ["abc", "1.5", "1_0", "٣", "0x1", "1 2", "-", str(HUGE), str(-HUGE - 1), "9" * 5000],
)
def test_what_is_no_number_of_64_bits_is_refused(text: str) -> None:
    assert _refusal(text) == (
        f"failed to get model version from specified version string '{text}' "
        "(details: stol), version should be an integral value > 0"
    )


@pytest.mark.contract("G-32")
@given(st.text().filter(lambda text: not re.fullmatch(r"([+-]?[0-9]+)?", text)))
def test_any_other_text_is_refused_and_quoted(text: str) -> None:
    assert f"'{text}'" in _refusal(text)


def test_a_response_becomes_final_with_all_that_it_holds() -> None:
    response = InferenceResponse({}, {"a": 1}, error=InternalError("why"))
    final = response.as_final()
    assert final.final
    assert (final.outputs, final.parameters, final.error) == (
        response.outputs,
        response.parameters,
        response.error,
    )


def test_a_final_response_stays_itself() -> None:
    response = make_response(final=True)
    assert response.as_final() is response


# -- rows ----------------------------------------------------------------------------------------


def test_a_request_has_the_rows_of_its_inputs_when_the_model_batches() -> None:
    assert rows_of(make_request(rows=3), max_batch_size=8) == 3


def test_a_request_counts_as_one_when_the_model_does_not_batch() -> None:
    assert rows_of(make_request(rows=3), max_batch_size=0) == 1


@pytest.mark.parametrize("inputs", [{}, {"IN": Tensor.from_numpy(np.array(1))}])
def test_a_request_without_a_first_dimension_counts_as_one(inputs: dict[str, Tensor]) -> None:
    assert rows_of(InferenceRequest("m", inputs=inputs), max_batch_size=8) == 1


@given(st.binary(), st.booleans())
def test_text_is_as_a_response_with_a_tensor(text: bytes, final: bool) -> None:
    response = TextResponse(text, final=final)
    general = response.with_outputs({"text_output": Tensor.from_strings([text])})
    assert type(general) is InferenceResponse
    assert response.outputs["text_output"].buffer == general.outputs["text_output"].buffer
    for one in (response, response.as_final()):
        assert (one.size, one.empty, one.error) == (general.size, False, None)
        assert one.parameters == {}
    assert (response.final, general.final, response.as_final().final) == (final, final, True)
