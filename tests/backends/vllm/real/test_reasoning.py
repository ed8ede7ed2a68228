"""Reasoning told from the answer, by a parser of vLLM's; the grammar makes the model think."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from backends.generation import plain, start
from penstock.core.config import ModelConfig
from penstock.core.errors import InvalidRequestError
from penstock.testing import RunningInstance, running
from penstock_backends.vllm import VllmBackend

pytestmark = pytest.mark.asyncio(loop_scope="session")

THOUGHT, ANSWER = " it is short.\n", " It is a file."
SAMPLING: dict[str, Any] = {
    "max_tokens": 60,
    "ignore_eos": False,
    "structured_outputs": {
        "choice": [f"Here is my thought process:{THOUGHT}Here is my response:{ANSWER}"]
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def thinking(
    checkpoint_version: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RunningInstance]:
    version = tmp_path_factory.mktemp("thinking")
    arguments = {
        "model": str(checkpoint_version / "model"),
        "dtype": "float32",
        "enforce_eager": True,
        "gpu_memory_utilization": 0.1,
        "max_model_len": 256,
        "max_num_seqs": 4,
        "reasoning_parser": "granite",
        "structured_outputs_config": {"enable_in_reasoning": True},
    }
    (version / "model.json").write_text(json.dumps(arguments))
    async with running(VllmBackend, ModelConfig(name="m"), version) as instance:
        yield instance


async def ask(instance: RunningInstance, **inputs: Any) -> list[dict[str, Any]]:
    return [plain(r) async for r in start(instance, inputs=inputs, **SAMPLING)]


def joined(replies: list[dict[str, Any]], name: str) -> str:
    return "".join(reply[name][0] for reply in replies)


@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_is_an_output_of_its_own(thinking: RunningInstance, stream: bool) -> None:
    inputs = {"stream": stream, "return_reasoning_text": True, "exclude_input_in_output": True}
    replies = await ask(thinking, **inputs)
    # Of a stream, vLLM's parser cuts off "Here" only if that is one token, which it is not here.
    assert joined(replies, "reasoning_text").removesuffix("Here" if stream else "") == THOUGHT
    assert joined(replies, "text_output") == ANSWER
    assert (len(replies) > 1) is stream


async def test_who_does_not_ask_gets_the_text_as_it_is(thinking: RunningInstance) -> None:
    text = joined(await ask(thinking), "text_output")
    assert text == SAMPLING["structured_outputs"]["choice"][0]


async def test_a_model_without_a_parser_says_what_it_needs(instance: RunningInstance) -> None:
    with pytest.raises(InvalidRequestError, match="needs a 'reasoning_parser' in the model's"):
        await ask(instance, return_reasoning_text=True)
