"""What Triton's own tests of its vLLM backend look at, in other words, over the stock client."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from conformance.language_models.asking import PROMPT, Asked

PROMPTS = ("The file is", "What is a list?", "Return the")
GREEDY = {"temperature": "0", "top_p": "1", "max_tokens": 24, "ignore_eos": True}
SWITCHES = (
    "return_finish_reason",
    "return_cumulative_logprob",
    "return_num_input_tokens",
    "return_num_output_tokens",
)


@pytest.mark.contract("VL-04", "VL-07", "VL-10")
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_text_is_the_same_every_time(vllm: Asked, prompt: str) -> None:
    one, other = vllm.ask(prompt, GREEDY), vllm.ask(prompt, GREEDY)
    assert one.text.startswith(prompt)
    assert len(one.text) > len(prompt) + 10
    assert (one.text, one.finals) == (other.text, [True])


@pytest.mark.contract("VL-06", "VL-11")
def test_a_stream_is_the_text_in_pieces_and_its_last_response_is_flagged(vllm: Asked) -> None:
    whole = vllm.ask(sampling=GREEDY, exclude_input_in_output=True)
    stream = vllm.ask(sampling=GREEDY, stream=True)
    assert stream.text == whole.text
    assert len(stream.responses) > 1
    assert stream.finals == [False] * (len(stream.finals) - 1) + [True]


@pytest.mark.contract("VL-08")
@pytest.mark.parametrize("exclude", [None, False, True])
def test_a_whole_answer_repeats_the_prompt_unless_excluded(vllm: Asked, exclude: Any) -> None:
    inputs = {} if exclude is None else {"exclude_input_in_output": exclude}
    text = vllm.ask(sampling=GREEDY, stream=False, **inputs).text
    assert text.startswith(PROMPT) is (exclude is not True)


@pytest.mark.contract("VL-08", "VL-15")
def test_a_stream_cannot_repeat_the_prompt(vllm: Asked) -> None:
    refused = vllm.ask(sampling=GREEDY, stream=True, exclude_input_in_output=False)
    assert refused.responses == []
    assert refused.error == (
        "Error generating stream: When streaming, `exclude_input_in_output` = False is not allowed."
    )


@pytest.mark.contract("VL-15")
def test_an_error_of_the_engine_begins_as_triton_s(vllm: Asked) -> None:
    error = vllm.ask(sampling=GREEDY | {"logit_bias": {"999999": 1}}).error
    assert error is not None
    assert error.startswith("Error generating stream: ")


@pytest.mark.contract("VL-09")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("asked_for", [(), *((name,) for name in SWITCHES), SWITCHES])
def test_additional_outputs_come_where_they_are_asked_for(
    vllm: Asked, stream: bool, asked_for: tuple[str, ...]
) -> None:
    wanted: Any = {name: name in asked_for for name in SWITCHES}
    reply = vllm.ask(sampling=GREEDY, stream=stream, **wanted)
    names = {"text_output"} | {name.removeprefix("return_") for name in asked_for}
    assert {frozenset(response) for response in reply.responses} == {frozenset(names)}


@pytest.mark.contract("VL-09")
def test_additional_outputs_of_a_stream_add_up(vllm: Asked) -> None:
    wanted: Any = dict.fromkeys(SWITCHES, True)
    reply = vllm.ask(sampling=GREEDY, stream=True, **wanted)
    assert reply.all("finish_reason") == ["None"] * (len(reply.responses) - 1) + ["length"]
    assert sum(reply.all("num_output_tokens")) == 24
    assert len(set(reply.all("num_input_tokens"))) == 1
    sums = reply.all("cumulative_logprob")
    assert sums == sorted(sums, reverse=True)


@pytest.mark.contract("VL-09")
def test_log_probabilities_are_json_for_each_token(vllm: Asked) -> None:
    reply = vllm.ask(sampling=GREEDY | {"logprobs": "1"}, stream=True, return_logprobs=True)
    places = [place for text in reply.all("logprobs") for place in json.loads(text)]
    assert len(places) == 24
    assert {key for place in places for token in place.values() for key in token} == {
        "logprob",
        "rank",
        "decoded_token",
    }


@pytest.mark.contract("VL-07")
@pytest.mark.parametrize(
    "structure",
    [
        {"structured_outputs": {"choice": ["positive", "negative"]}},
        {"guided_decoding": json.dumps({"choice": ["positive", "negative"]})},
        {"structured_outputs": {"json": {"enum": ["positive", "negative"]}}},
        {"structured_outputs": {"grammar": 'root ::= "positive" | "negative"'}},
    ],
)
def test_structured_outputs_leave_no_choice(vllm: Asked, structure: dict[str, Any]) -> None:
    sampling = {"temperature": 0, "max_tokens": 40, **structure}
    text = vllm.ask(sampling=sampling, exclude_input_in_output=True).text
    assert text.strip('"') in ("positive", "negative")


@pytest.mark.contract("VL-21")
def test_generate_takes_text_and_parameters(vllm: Asked) -> None:
    body = {"text_input": PROMPT, "parameters": {"stream": False, "temperature": 0}}
    request = urllib.request.Request(
        f"http://{vllm.server.http}/v2/models/m/generate", json.dumps(body).encode()
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        reply = json.loads(answer.read())
    assert reply["text_output"].startswith(PROMPT)
    assert reply["model_name"] == "m"
