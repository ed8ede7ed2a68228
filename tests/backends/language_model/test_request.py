"""Decoding of the tensors of Triton's vLLM backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.core.errors import InvalidRequestError
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor
from penstock.testing import as_tensor
from penstock_backends.language_model import (
    GenerationRequest,
    WantedOutputs,
    checked_ids,
    read_request,
)


def read(parameters: Any = None, **inputs: Any) -> GenerationRequest:
    tensors = {name: as_tensor(value) for name, value in {"text_input": "Hi", **inputs}.items()}
    return read_request(InferenceRequest("m", inputs=tensors, parameters=parameters or {}))


def ids(*tokens: int) -> Tensor:
    return Tensor.from_numpy(np.array(tokens, np.int32), DataType.INT32)


@pytest.mark.contract("VL-04", "VL-08")
def test_a_prompt_alone_is_answered_whole_behind_the_prompt() -> None:
    assert read() == GenerationRequest("Hi", parameters={})


def test_a_stream_leaves_the_prompt_out() -> None:
    assert read(stream=True) == GenerationRequest(
        "Hi", stream=True, prepend_prompt=False, parameters={}
    )


def test_the_prompt_can_be_left_out() -> None:
    assert read(exclude_input_in_output=True).prepend_prompt is False


@pytest.mark.contract("VL-08")
def test_a_stream_cannot_repeat_the_prompt() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read(stream=True, exclude_input_in_output=False)
    assert refused.value.message == (
        "Error generating stream: When streaming, `exclude_input_in_output` = False is not allowed."
    )


def test_a_stream_may_exclude_the_prompt_twice() -> None:
    assert read(stream=True, exclude_input_in_output=True).prepend_prompt is False


@pytest.mark.contract("VL-07")
def test_the_tensor_comes_before_request_parameters() -> None:
    assert read({"n": 3}, sampling_parameters='{"n": 2}').parameters == {"n": 2}


@pytest.mark.contract("VL-07")
def test_request_parameters_stand_in_for_the_tensor() -> None:
    assert read({"temperature": 0}).parameters == {"temperature": 0}


def test_outputs_are_asked_for_one_by_one() -> None:
    wanted = read(return_finish_reason=True, return_logprobs=False).wanted
    assert wanted == WantedOutputs(finish_reason=True)


@pytest.mark.parametrize("prompt", [b"\xff", b"\xed\xa0\x80"])
def test_a_prompt_that_is_not_text_is_refused(prompt: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="input 'text_input' is not valid UTF-8"):
        read(text_input=prompt)


@pytest.mark.parametrize("texts", [[], ["a", "b"]])
def test_one_prompt_is_wanted(texts: list[str]) -> None:
    with pytest.raises(InvalidRequestError, match="input 'text_input' must hold one string"):
        read(text_input=texts)


def test_a_missing_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no prompt: give input 'text_input' or"):
        read_request(InferenceRequest("m"))


def test_two_prompts_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="the request has two prompts"):
        read(input_ids=ids(1, 2))


def test_token_ids_stand_in_for_the_text_and_are_not_repeated() -> None:
    request = read(text_input="", input_ids=ids(1, 2))
    assert (request.prompt, request.prepend_prompt) == ("", False)
    assert request.input_ids is not None
    assert checked_ids(request.input_ids, 10, 2) == [1, 2]


def test_token_ids_cannot_be_repeated_as_text() -> None:
    with pytest.raises(InvalidRequestError, match="needs a prompt in 'text_input'"):
        read(text_input="", input_ids=ids(1), exclude_input_in_output=False)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (ids(), "input 'input_ids' must hold token ids"),
        (ids(1, 2, 3), "has 3 tokens, but the model's context length is 2 tokens"),
        (ids(10), "holds 10, but the model's token ids are 0 to 9"),
        (ids(0, -1), "holds -1, but the model's token ids are 0 to 9"),
    ],
)
def test_token_ids_that_the_model_does_not_have_are_refused(given: Tensor, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        checked_ids(given.numpy(), 10, 2)


def test_one_boolean_is_wanted() -> None:
    pair = Tensor.from_numpy(np.array([True, False]), DataType.BOOL)
    with pytest.raises(InvalidRequestError, match="input 'stream' must hold one boolean"):
        read(stream=pair)
