"""Reasoning told from the answer, by a parser of vLLM's; the grammar makes the model think."""

from __future__ import annotations

from typing import Any

import pytest

from backends.generation import plain, start
from backends.vllm.real.conftest import Sharing
from penstock.core.errors import InvalidRequestError
from penstock.testing import RunningInstance

pytestmark = pytest.mark.asyncio(loop_scope="session")

THOUGHT, ANSWER = " it is short.\n", " It is a file."
SAMPLING: dict[str, Any] = {
    "max_tokens": 60,
    "ignore_eos": False,
    "structured_outputs": {
        "choice": [f"Here is my thought process:{THOUGHT}Here is my response:{ANSWER}"]
    },
}


@pytest.fixture
def thinking(sharing: Sharing) -> RunningInstance:
    return sharing.instance


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
