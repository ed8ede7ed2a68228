"""Requests and outputs of the real engine with the demo's model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from backends.generation import PROMPT, token_ids
from backends.openvino_genai.asking import ask, opened
from penstock.core.request import Parameters
from penstock.testing import RunningInstance

pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def instance(gguf_version: Path) -> AsyncIterator[RunningInstance]:
    """One engine for all: to open it takes longer than to ask it."""
    async with opened(gguf_version) as instance:
        yield instance


async def test_a_stream_is_the_whole_text_in_pieces(instance: RunningInstance) -> None:
    whole = await ask(instance, inputs={"stream": False}, max_tokens=20)
    stream = await ask(instance, max_tokens=20)
    assert whole.texts == [PROMPT + stream.text]
    assert len(stream.texts) > 2
    assert stream.finals == [False] * (len(stream.finals) - 1) + [True]


async def test_without_a_stream_input_the_answer_is_whole(instance: RunningInstance) -> None:
    responses = [r async for r in instance.infer({"text_input": PROMPT})]
    assert [response.final for response in responses] == [True]


async def test_parameters_of_the_request_stand_in_for_the_tensor(
    instance: RunningInstance,
) -> None:
    parameters: Parameters = {"temperature": "0", "max_tokens": 3, "ignore_eos": True}
    inputs: dict[str, Any] = {"text_input": PROMPT, "return_num_output_tokens": True}
    responses = [r async for r in instance.infer(inputs, parameters)]
    assert responses[0].outputs["num_output_tokens"].numpy().tolist() == [3]


async def test_everything_that_can_be_asked_for(instance: RunningInstance) -> None:
    wanted = dict.fromkeys(
        (
            "return_finish_reason",
            "return_cumulative_logprob",
            "return_logprobs",
            "return_num_input_tokens",
            "return_num_output_tokens",
        ),
        True,
    )
    reply = await ask(instance, inputs=wanted, max_tokens=12, logprobs=0, skip_special_tokens=False)
    assert set(reply.outputs[0]) == {name.removeprefix("return_") for name in wanted} | {
        "text_output"
    }
    assert reply.all("finish_reason")[-1] == ["length"]
    assert set(map(tuple, reply.all("finish_reason")[:-1])) == {("None",)}
    assert sum(count for (count,) in reply.all("num_output_tokens")) == 12
    places = [place for (text,) in reply.all("logprobs") for place in json.loads(text)]
    assert "".join(token["decoded_token"] for place in places for token in place.values()) == (
        reply.text
    )
    total = sum(token["logprob"] for place in places for token in place.values())
    assert reply.all("cumulative_logprob")[-1] == [pytest.approx(total, rel=1e-4)]


async def test_the_models_own_end_stops(instance: RunningInstance) -> None:
    inputs = {"return_finish_reason": True, "return_num_output_tokens": True}
    ended = await ask(instance, inputs=inputs, ignore_eos=False, max_tokens=500)
    longer = await ask(instance, inputs=inputs, max_tokens=500)
    assert ended.all("finish_reason")[-1] == ["stop"]
    assert longer.all("finish_reason")[-1] == ["length"]
    assert longer.text.startswith(ended.text)
    assert sum(count for (count,) in longer.all("num_output_tokens")) == 500


async def test_a_stop_string_cuts_the_text(instance: RunningInstance) -> None:
    plain = await ask(instance, max_tokens=30)
    stop = plain.text[len(plain.text) // 2 :][:4]
    cut = await ask(instance, max_tokens=30, stop=[stop], inputs={"return_finish_reason": True})
    kept = await ask(instance, max_tokens=30, stop=stop, include_stop_str_in_output=True)
    before = plain.text[: plain.text.index(stop)]
    assert (cut.text, kept.text) == (before, before + stop)
    assert cut.all("finish_reason")[-1] == ["stop"]
    assert cut.finals[-1]


@pytest.mark.parametrize("ignore_eos", [True, False])
async def test_a_stop_token_ends_the_text(instance: RunningInstance, ignore_eos: bool) -> None:
    inputs = {"return_logprobs": True, "return_num_output_tokens": True}
    plain = await ask(instance, max_tokens=8, logprobs=0)
    with_ids = await ask(instance, inputs=inputs, max_tokens=8, logprobs=0)
    tokens = [int(t) for (text,) in with_ids.all("logprobs") for p in json.loads(text) for t in p]
    stop = tokens[2]
    short = await ask(
        instance, inputs=inputs, max_tokens=8, stop_token_ids=[stop], ignore_eos=ignore_eos
    )
    taken = tokens.index(stop) + 1
    assert sum(count for (count,) in short.all("num_output_tokens")) == taken
    assert plain.text.startswith(short.text)


async def test_a_minimum_outlasts_the_models_own_end(instance: RunningInstance) -> None:
    inputs = {"return_num_output_tokens": True}
    limits: dict[str, Any] = {"ignore_eos": False, "max_tokens": 400, "min_tokens": 400}
    reply = await ask(instance, inputs=inputs, **limits)
    assert sum(count for (count,) in reply.all("num_output_tokens")) == 400


async def test_a_seed_decides_the_text(instance: RunningInstance) -> None:
    sampling: dict[str, Any] = {"temperature": 1.5, "max_tokens": 30}
    first = await ask(instance, seed=7, **sampling)
    again = await ask(instance, seed=7, **sampling)
    other = await ask(instance, seed=8, **sampling)
    assert first.text == again.text != other.text


async def test_without_a_seed_texts_differ(instance: RunningInstance) -> None:
    sampling: dict[str, Any] = {"temperature": 1.5, "max_tokens": 30}
    assert (await ask(instance, **sampling)).text != (await ask(instance, **sampling)).text


async def test_candidates_differ_and_stream_together(instance: RunningInstance) -> None:
    sampling: dict[str, Any] = {"n": 3, "seed": 7, "temperature": 1.5, "max_tokens": 30}
    stream = await ask(instance, **sampling)
    whole = await ask(
        instance, inputs={"stream": False, "exclude_input_in_output": True}, **sampling
    )
    texts = ["".join(pieces) for pieces in zip(*stream.all("text_output"), strict=True)]
    assert whole.all("text_output") == [texts]
    assert len(set(texts)) == 3
    assert len(stream.texts) < 60


async def test_token_ids_go_in_and_come_out(instance: RunningInstance) -> None:
    """The tokens of an answer, given back behind those of the prompt, go on where it ended."""
    whole = await ask(instance, inputs={"return_token_ids": True}, max_tokens=8)
    ids = [token for tokens in whole.all("token_ids") for token in tokens]
    assert len(ids) == 8
    prompt = instance.backend._tokenizer.encode(PROMPT).ids
    inputs = {"input_ids": token_ids(*prompt, *ids[:4]), "return_token_ids": True}
    rest = await ask(instance, inputs=inputs, max_tokens=4)
    assert [token for tokens in rest.all("token_ids") for token in tokens] == ids[4:]


async def test_the_stop_string_or_token_is_told(instance: RunningInstance) -> None:
    wanted = {"return_stop_reason": True, "return_token_ids": True}
    whole = await ask(instance, inputs=wanted, max_tokens=8)
    assert whole.all("stop_reason")[-1] == ["null"]
    last = whole.all("token_ids")[-1][-1]
    by_token = await ask(instance, inputs=wanted, max_tokens=8, stop_token_ids=[last])
    assert by_token.all("stop_reason")[-1] == [str(last)]
    text = whole.text.strip()[:3]
    by_text = await ask(instance, inputs=wanted, max_tokens=8, stop=[text])
    assert by_text.all("stop_reason")[-1] == [json.dumps(text)]
