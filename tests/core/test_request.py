"""Requests and responses, and the versions that requests name."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import make_request, make_response
from penstock.core.errors import InternalError, InvalidRequestError, UnsupportedError
from penstock.core.http_exchange import HttpHead
from penstock.core.request import (
    ANY_VERSION,
    ExchangePart,
    InferenceRequest,
    InferenceResponse,
    RequestScope,
    Sender,
    TextResponse,
    parse_version,
    rows_of,
    text_correlation_id,
)
from penstock.core.tensor import Tensor
from penstock.core.timeline import Trace

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


# -- identity, scope and bounds -------------------------------------------------------------------


def test_a_request_is_equal_to_itself_alone() -> None:
    one, other = make_request(), make_request()
    assert (one == one._replace(), one != one._replace()) == (False, True)
    assert (one == other, one != other) == (False, True)
    same = one
    assert (one == same, one != same, hash(one) == hash(same)) == (True, False, True)


def test_a_part_of_a_request_inherits_all_but_its_tokens() -> None:
    sender, timeline = Sender("t", 2, "label"), Trace(0).root
    scope = RequestScope(
        5.0, (), timeline, lambda *_: None, sender, waited=7, call_id="c", infer=lambda _: None
    )
    part = scope.part()
    assert (part.deadline, part.call_chain, part.timeline, part.sender) == (
        *(5.0, (), timeline),
        sender,
    )
    assert (part.report_usage, part.waited, part.call_id, part.infer) == (None, 0, "", None)


def test_nothing_is_noted_in_a_scope_that_nobody_made() -> None:
    request = InferenceRequest("m")
    with pytest.raises(AttributeError) as refused:
        request.scope.waited = 1
    assert str(refused.value) == (
        "'waited' of a request without a scope: make it with scope=RequestScope()"
    )


def test_a_mark_stands_in_the_trace_of_the_request() -> None:
    timeline = Trace(0).root
    InferenceRequest("m", scope=RequestScope(timeline=timeline)).mark("TOKENIZE_START")
    InferenceRequest("m").mark("TOKENIZE_START")
    assert [name for name, _ in timeline.marks] == ["TOKENIZE_START"]


def test_a_correlation_id_has_128_bytes_at_most() -> None:
    assert text_correlation_id("é" * 64) == "é" * 64
    with pytest.raises(UnsupportedError) as refused:
        text_correlation_id("é" * 64 + "a")
    assert refused.value.message == "string correlation ID cannot be longer than 128 characters"


def test_the_size_of_a_response_is_that_of_its_tensors() -> None:
    outputs = {"a": Tensor.from_numpy(np.zeros(3, np.int32)), "b": Tensor.from_strings(["x"])}
    response = InferenceResponse(outputs, {"p": 1}, final=True)
    assert (response.size, response.empty, InferenceResponse().empty) == (12 + 5, False, True)
    other = response.with_outputs({})
    assert (other.outputs, other.parameters, other.final, other.error) == ({}, {"p": 1}, True, None)


def test_a_part_of_a_body_becomes_the_last_one_with_all_that_it_holds() -> None:
    part = ExchangePart(head=HttpHead(200), body=b"abc", error=InternalError("why"))
    last = part.as_final()
    assert (last.final, last.head, last.body, last.error) == (True, part.head, b"abc", part.error)
    assert part.size == 3
