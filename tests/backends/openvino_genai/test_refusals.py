"""Requests that the real engine cannot hold, and a slow reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from backends.conftest import write_settings
from backends.generation import PROMPT, start, token_ids, until, usage
from backends.openvino_genai.asking import ask, exhaust, opened
from penstock.core.errors import InvalidRequestError, RejectedError
from penstock.testing import RunningInstance

pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def instance(gguf_version: Path) -> AsyncIterator[RunningInstance]:
    """One engine for all: to open it takes longer than to ask it."""
    async with opened(gguf_version) as instance:
        yield instance


# -- what does not fit -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "sampling", "why"),
    [
        ("word " * 2000, {}, "tokens, but the model's context length is 1024 tokens"),
        ("x" * 1_000_000, {}, "has 1000000 characters"),
        ("", {}, "the prompt is empty"),
        (PROMPT, {"logit_bias": {"1": 1}}, "'logit_bias' is not supported by the openvino_genai"),
        (PROMPT, {"frequency": 1}, "'frequency' is not supported by the openvino_genai"),
    ],
)
async def test_a_rejected_request_gets_the_reason(
    instance: RunningInstance, prompt: str, sampling: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        await ask(instance, prompt, **sampling)
    assert (await ask(instance, max_tokens=2)).finals[-1]


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ({"input_ids": token_ids(1 << 30)}, "holds 1073741824, but the model's token ids are 0 to"),
        ({"input_ids": token_ids(-1)}, "holds -1, but the model's token ids are 0 to"),
        ({"input_ids": token_ids()}, "must hold token ids"),
        ({"input_ids": token_ids(*[1] * 2000)}, "has 2000 tokens, but the model's context length"),
    ],
)
async def test_token_ids_that_the_engine_would_fail_on_are_refused(
    instance: RunningInstance, inputs: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        await ask(instance, inputs=inputs)
    assert (await ask(instance, max_tokens=2)).finals[-1]


async def test_generation_ends_with_the_context(instance: RunningInstance) -> None:
    answered = await ask(
        instance,
        inputs={"return_finish_reason": True, "return_num_output_tokens": True},
        max_tokens=512,
        ignore_eos=True,
    )
    assert answered.all("finish_reason")[-1] == ["length"]


async def test_a_request_larger_than_the_cache_leaves_the_others_alone(
    own_gguf_version: Path,
) -> None:
    """The engine itself would give up both it and its neighbour."""
    write_settings(own_gguf_version, num_kv_blocks=4)
    async with opened(own_gguf_version) as instance:
        with pytest.raises(InvalidRequestError, match="but the engine has 4"):
            await ask(instance, max_tokens=200)
        assert (await ask(instance, max_tokens=100)).finals[-1]


async def test_a_full_queue_turns_away(own_gguf_version: Path) -> None:
    write_settings(own_gguf_version, num_kv_blocks=64, max_num_seqs=1, max_num_waiting=1)
    async with opened(own_gguf_version) as instance:
        requests = [
            instance.infer({"text_input": PROMPT, "sampling_parameters": '{"max_tokens": 50}'})
            for _ in range(3)
        ]
        streams = [aiter(request) for request in requests]
        tasks = [asyncio.ensure_future(anext(stream)) for stream in streams]
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(result, RejectedError) for result in done] == [False, False, True]
        for request in requests:
            await request.aclose()


# -- a slow reader ---------------------------------------------------------------------------------


async def test_a_slow_reader_gets_merged_responses(instance: RunningInstance) -> None:
    plain = await ask(instance, max_tokens=300)
    async with aclosing(start(instance, max_tokens=300)) as responses:
        first = await anext(responses)
        await until(lambda: not usage(instance)[0])
        texts = [first.outputs["text_output"].elements()[0].decode(), *await exhaust(responses)]
    assert "".join(texts) == plain.text
    assert len(texts) < 20
