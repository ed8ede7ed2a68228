"""Answers of the generate endpoints, for texts made by a shorter way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.request import InferenceRequest, TextResponse
from penstock.gateway.inference.generate_codec import TextAnswers, answer_of
from penstock.gateway.json.tensors import SHORT_TEXT

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
        answer = answer_of(request, version, tensors)
        assert answer is not None
        assert answers.json_of(response) == answer.json


def test_long_texts_are_left_to_the_slower_way() -> None:
    answers = TextAnswers(InferenceRequest("m"), "1")
    assert answers.json_of(TextResponse(b"x" * SHORT_TEXT)) is not None
    assert answers.json_of(TextResponse(b"x" * (SHORT_TEXT + 1))) is None
