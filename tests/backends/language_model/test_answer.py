"""Candidates become responses with deltas or whole texts."""

from __future__ import annotations

import json
import math

import pytest

from penstock.core.request import InferenceResponse
from penstock.core.tensor import Tensor
from penstock_backends.language_model import Answer, GenerationRequest, WantedOutputs

TEXT = WantedOutputs()
EVERYTHING = WantedOutputs(True, True, True, True, True)
TOKEN = {7: {"logprob": -0.5, "rank": 1, "decoded_token": "a"}}


def texts(response: InferenceResponse, name: str = "text_output") -> list[str]:
    return [element.decode() for element in response.outputs[name].elements()]


def streamed(candidates: int = 1, wanted: WantedOutputs = TEXT) -> Answer:
    return Answer(GenerationRequest("P", True, False, None, wanted), 3, candidates)


def whole(prepend: bool = True, candidates: int = 1) -> Answer:
    return Answer(GenerationRequest("P ", False, prepend), 3, candidates)


def test_a_delta_is_due_when_there_is_text() -> None:
    answer = streamed()
    assert not answer.due
    answer.candidates[0].add("")
    assert not answer.due
    answer.candidates[0].add("a")
    assert answer.due


@pytest.mark.contract("VL-10")
def test_a_delta_holds_the_new_text() -> None:
    answer = streamed()
    answer.candidates[0].add("a")
    answer.candidates[0].add("b")
    first = answer.take_response()
    answer.candidates[0].add("c")
    answer.candidates[0].finish_reason = "length"
    second = answer.take_response()
    assert (texts(first), first.final, texts(second), second.final) == (["ab"], False, ["c"], True)


def test_the_end_is_due_without_text() -> None:
    answer = streamed()
    answer.candidates[0].finish_reason = "stop"
    assert answer.due
    assert (texts(answer.take_response()), answer.finished) == ([""], True)


def test_a_whole_answer_is_due_when_every_candidate_is_finished() -> None:
    answer = whole(candidates=2)
    answer.candidates[0].add("a")
    answer.candidates[0].finish_reason = "stop"
    assert not answer.due
    answer.candidates[1].add("b")
    answer.candidates[1].finish_reason = "length"
    assert texts(answer.take_response()) == ["P a", "P b"]


@pytest.mark.contract("VL-08")
def test_the_prompt_is_left_out_when_asked() -> None:
    answer = whole(prepend=False)
    answer.candidates[0].add("a")
    answer.candidates[0].finish_reason = "stop"
    assert texts(answer.take_response()) == ["a"]


def test_only_the_text_is_there_unless_asked() -> None:
    answer = streamed()
    answer.candidates[0].add("a")
    assert list(answer.take_response().outputs) == ["text_output"]


@pytest.mark.contract("VL-09")
def test_everything_that_was_asked_for() -> None:
    answer = streamed(wanted=EVERYTHING)
    answer.candidates[0].add("a")
    answer.candidates[0].add_logprobs([TOKEN], -0.5)
    outputs = answer.take_response().outputs
    assert [outputs[name].shape for name in outputs] == [(1,)] * 6
    assert outputs["finish_reason"].elements() == [b"None"]
    assert json.loads(outputs["logprobs"].elements()[0]) == [{"7": TOKEN[7]}]
    assert outputs["cumulative_logprob"].numpy().tolist() == [-0.5]
    assert outputs["num_input_tokens"].numpy().tolist() == [3]
    assert outputs["num_output_tokens"].numpy().tolist() == [1]


def test_counts_and_probabilities_are_of_the_delta_and_sums_of_the_whole() -> None:
    answer = streamed(wanted=EVERYTHING)
    answer.candidates[0].add("a", tokens=2)
    answer.candidates[0].add_logprobs([TOKEN, TOKEN], -1.0)
    answer.take_response()
    answer.candidates[0].add("b")
    answer.candidates[0].add_logprobs([TOKEN], -1.5)
    outputs = answer.take_response().outputs
    assert outputs["num_output_tokens"].numpy().tolist() == [1]
    assert len(json.loads(outputs["logprobs"].elements()[0])) == 1
    assert outputs["cumulative_logprob"].numpy().tolist() == [-1.5]


def test_probabilities_that_were_not_computed() -> None:
    answer = streamed(wanted=EVERYTHING)
    answer.candidates[0].add("a")
    outputs = answer.take_response().outputs
    assert outputs["logprobs"].elements() == [b"null"]
    assert math.isnan(outputs["cumulative_logprob"].numpy()[0])


def test_a_finished_candidate_keeps_its_reason_while_others_go_on() -> None:
    answer = streamed(candidates=2, wanted=EVERYTHING)
    answer.candidates[0].finish_reason = "stop"
    answer.candidates[1].add("a")
    answer.take_response()
    answer.candidates[1].add("b")
    response = answer.take_response()
    assert (texts(response), texts(response, "finish_reason")) == (["", "b"], ["stop", "None"])


def test_token_ids_are_of_the_delta_one_candidate_after_the_other() -> None:
    answer = streamed(candidates=2, wanted=WantedOutputs(token_ids=True, num_output_tokens=True))
    for candidate, tokens in zip(answer.candidates, ([1, 2], [3]), strict=True):
        candidate.add("", tokens=len(tokens))
        candidate.token_ids.extend(tokens)
    assert answer.due
    outputs = answer.take_response().outputs
    assert outputs["token_ids"].numpy().tolist() == [1, 2, 3]
    assert outputs["num_output_tokens"].numpy().tolist() == [2, 1]
    assert answer.take_response().outputs["token_ids"].shape == (0,)


@pytest.mark.parametrize(("reason", "text"), [("1", '"1"'), (1, "1"), (None, "null")])
def test_a_stop_string_is_told_from_a_token(reason: int | str | None, text: str) -> None:
    answer = streamed(wanted=WantedOutputs(stop_reason=True))
    answer.candidates[0].finish_reason = "stop"
    answer.candidates[0].stop_reason = reason
    assert texts(answer.take_response(), "stop_reason") == [text]


def test_reasoning_is_apart_from_the_text() -> None:
    answer = streamed(wanted=WantedOutputs(reasoning_text=True))
    answer.candidates[0].reasoning += ["so ", "be it"]
    assert answer.due
    response = answer.take_response()
    assert (texts(response), texts(response, "reasoning_text")) == ([""], ["so be it"])
    assert not answer.due


def test_an_attached_output_is_sent_once() -> None:
    answer = streamed()
    answer.attach("prompt_logprobs", Tensor.from_strings(["[]"]))
    answer.candidates[0].add("a")
    assert texts(answer.take_response(), "prompt_logprobs") == ["[]"]
    answer.candidates[0].add("b")
    assert list(answer.take_response().outputs) == ["text_output"]
