"""What goes in and out of a language model beside its text, with the real engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backends.generation import PROMPT, plain, start, token_ids
from penstock.core.errors import InvalidRequestError
from penstock.testing import RunningInstance

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def ask(instance: RunningInstance, inputs: Any = None, **given: Any) -> list[dict[str, Any]]:
    return [plain(response) async for response in start(instance, inputs=inputs, **given)]


def joined(replies: list[dict[str, Any]], name: str) -> list[Any]:
    return [value for reply in replies for value in reply[name]]


def prompt_ids(instance: RunningInstance) -> list[int]:
    tokenizer = instance.backend._engine._llm.get_tokenizer()
    return list(tokenizer.encode(PROMPT))


async def test_token_ids_go_in_and_come_out(instance: RunningInstance) -> None:
    """The tokens of an answer, given back behind those of the prompt, go on where it ended."""
    whole = joined(await ask(instance, {"return_token_ids": True}, max_tokens=8), "token_ids")
    assert len(whole) == 8
    inputs = {"input_ids": token_ids(*prompt_ids(instance), *whole[:4]), "return_token_ids": True}
    assert joined(await ask(instance, inputs, max_tokens=4), "token_ids") == whole[4:]


async def test_tokens_without_text_are_streamed_too(instance: RunningInstance) -> None:
    replies = await ask(instance, {"return_token_ids": True}, max_tokens=40, detokenize=False)
    assert [reply["text_output"] for reply in replies] == [[""]] * len(replies)
    assert len(joined(replies, "token_ids")) == 40
    assert len(replies) > 1


async def test_candidates_ids_follow_one_another(instance: RunningInstance) -> None:
    wanted = {"return_token_ids": True, "return_num_output_tokens": True, "stream": False}
    (reply,) = await ask(instance, wanted, n=2, seed=1, temperature=1.0, max_tokens=5)
    assert reply["num_output_tokens"] == [5, 5]
    assert len(reply["token_ids"]) == 10


@pytest.mark.parametrize("flat", [False, True])
async def test_log_probabilities_of_the_prompt_come_with_the_first_response(
    instance: RunningInstance, flat: bool
) -> None:
    wanted = {"return_prompt_logprobs": True}
    replies = await ask(instance, wanted, max_tokens=4, flat_logprobs=flat)
    assert [list(reply) for reply in replies[1:]] == [["text_output"]] * (len(replies) - 1)
    places = json.loads(replies[0]["prompt_logprobs"][0])
    assert places[0] is None
    tokens = [str(token) for token in prompt_ids(instance)[1:]]
    assert [place[token]["logprob"] < 0 for place, token in zip(places[1:], tokens, strict=True)]


@pytest.mark.parametrize("stream", [False, True])
async def test_asking_for_them_as_sampling_parameter_is_enough(
    instance: RunningInstance, stream: bool
) -> None:
    replies = await ask(instance, {"stream": stream}, max_tokens=4, prompt_logprobs=2)
    assert {len(place) >= 2 for place in json.loads(replies[0]["prompt_logprobs"][0])[1:]} == {True}


async def test_the_stop_string_or_token_is_told(instance: RunningInstance) -> None:
    wanted = {"return_stop_reason": True, "return_token_ids": True}
    whole = await ask(instance, wanted, max_tokens=8)
    assert whole[-1]["stop_reason"] == ["null"]
    last = whole[-1]["token_ids"][-1]
    by_token = await ask(instance, wanted, max_tokens=8, stop_token_ids=[last])
    assert by_token[-1]["stop_reason"] == [str(last)]
    text = "".join(joined(whole, "text_output")).strip()[:3]
    by_text = await ask(instance, wanted, max_tokens=8, stop=text)
    assert by_text[-1]["stop_reason"] == [json.dumps(text)]


async def test_the_first_response_of_a_stream_tells_the_prompts_tokens(
    instance: RunningInstance,
) -> None:
    wanted = {"return_num_input_tokens": True, "return_num_cached_tokens": True}
    first = (await ask(instance, wanted, max_tokens=4))[0]
    assert first["num_input_tokens"] == [len(prompt_ids(instance))]
    assert first["num_cached_tokens"] == [0]


async def test_options_reach_the_engine(instance: RunningInstance) -> None:
    plainly = joined(await ask(instance, max_tokens=4), "text_output")
    salted = await ask(instance, max_tokens=4, cache_salt="a", session_id="s")
    assert "".join(joined(salted, "text_output")) == "".join(plainly)


@pytest.mark.parametrize(
    ("inputs", "sampling", "why"),
    [
        ({"input_ids": token_ids(1 << 30)}, {}, "holds 1073741824, but the model's token ids are"),
        ({"input_ids": token_ids(-1)}, {}, "holds -1, but the model's token ids are 0 to"),
        ({"input_ids": token_ids()}, {}, "must hold token ids"),
        ({"input_ids": token_ids(*[1] * 2000)}, {}, "has 2000 tokens, but the model's context"),
        ({}, {"priority": 1}, 'needs "scheduling_policy": "priority"'),
        ({}, {"cache_salt": ""}, "'cache_salt' must be a text of 1 to"),
        ({}, {"prompt_logprobs": 10**6}, "prompt logprobs of 1000000"),
    ],
)
async def test_bad_input_is_refused_and_the_engine_lives(
    instance: RunningInstance, inputs: dict[str, Any], sampling: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        await ask(instance, inputs, **sampling)
    assert await ask(instance, max_tokens=2)
