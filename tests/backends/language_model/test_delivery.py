"""A slow reader gets merged responses, and none is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InternalError, RequestCancelledError
from penstock.core.request import InferenceResponse
from penstock_backends.language_model import Answer, Delivery, GenerationRequest, WantedOutputs

COUNTED = WantedOutputs(num_output_tokens=True)


def delivery(*, merge: bool = True) -> Delivery:
    answer = Answer(GenerationRequest("", True, False, None, COUNTED), 1)
    return Delivery(answer, lambda: None, merge=merge)


def generate(delivery: Delivery, tokens: int) -> None:
    for _ in range(tokens):
        delivery.answer.candidates[0].add("x")
        delivery.push()


def finish(delivery: Delivery) -> None:
    delivery.answer.candidates[0].finish_reason = "length"
    delivery.push()


def counts(responses: list[InferenceResponse]) -> list[int]:
    return [int(response.outputs["num_output_tokens"].numpy()[0]) for response in responses]


def test_a_reader_that_keeps_up_gets_every_token() -> None:
    sender = delivery()
    for _ in range(3):
        generate(sender, 1)
        assert counts(sender.stream.take_ready()) == [1]


def test_a_slow_reader_finds_one_response() -> None:
    sender = delivery()
    generate(sender, 1000)
    assert sender.stream.backlog == 1


def test_catching_up_returns_the_merged_tokens() -> None:
    sender = delivery()
    generate(sender, 1000)
    assert counts(sender.stream.take_ready()) == [1]
    assert counts(sender.stream.take_ready()) == [999]


def test_the_end_comes_at_once_with_everything_merged() -> None:
    sender = delivery()
    generate(sender, 1000)
    finish(sender)
    responses = sender.stream.take_ready()
    assert counts(responses) == [1, 999]
    assert [response.final for response in responses] == [False, True]


def test_a_reader_may_have_every_token_alone_however_slow_he_is() -> None:
    sender = delivery(merge=False)
    generate(sender, 1000)
    finish(sender)
    responses = sender.stream.take_ready()
    assert counts(responses) == [1] * 1000 + [0]
    assert responses[-1].final


@given(st.lists(st.integers(0, 40)))
def test_text_and_counts_are_complete_whenever_the_reader_takes(bursts: list[int]) -> None:
    sender = delivery()
    responses: list[InferenceResponse] = []
    for burst in bursts:
        generate(sender, burst)
        responses += sender.stream.take_ready()
    finish(sender)
    responses += sender.stream.take_ready()
    texts = [response.outputs["text_output"].elements()[0].decode() for response in responses]
    assert sum(counts(responses)) == sum(bursts)
    assert "".join(texts) == "x" * sum(bursts)
    assert [response.final for response in responses].count(True) == 1


async def test_a_failure_is_raised_after_the_sent_responses() -> None:
    sender = delivery()
    generate(sender, 1)
    sender.fail(InternalError("broken"))
    assert counts([await anext(sender.stream)]) == [1]
    with pytest.raises(InternalError, match="broken"):
        await anext(sender.stream)


async def test_a_reader_that_leaves_is_reported() -> None:
    left: list[bool] = []
    answer = Answer(GenerationRequest("", True, False), 1)
    sender = Delivery(answer, lambda: left.append(True))
    sender.stream.close()
    generate(sender, 1)
    assert left == [True]
    with pytest.raises(RequestCancelledError):
        await anext(sender.stream)
