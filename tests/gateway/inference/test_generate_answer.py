"""Answers of the generate endpoints, for texts made by a shorter way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.request import InferenceRequest, TextResponse
from penstock.gateway.inference.generate_answer import TextAnswers, answer_of

names = st.text(min_size=1, max_size=8)
texts = st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))


@given(names, st.just("") | names, names, st.lists(texts | st.binary(max_size=50), min_size=1))
def test_texts_are_byte_for_byte_as_tensors(
    model: str, request_id: str, version: str, stream: list[bytes]
) -> None:
    request = InferenceRequest(model, id=request_id)
    answers = TextAnswers(request, version)
    for text in stream:
        response = TextResponse(text)
        tensors = response.with_outputs(response.outputs)
        assert answers.answer_of(response) == answer_of(request, version, tensors)


@pytest.mark.parametrize("size", [(1 << 14) - 4, (1 << 14) - 3])
def test_long_texts_are_left_to_the_slower_way(size: int) -> None:
    request, response = InferenceRequest("m"), TextResponse(b"x" * size)
    tensors = response.with_outputs(response.outputs)
    assert TextAnswers(request, "1").answer_of(response) == answer_of(request, "1", tensors)
    assert (answer_of(request, "1", tensors) is None) == (size > (1 << 14) - 4)
