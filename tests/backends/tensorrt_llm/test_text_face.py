"""The names of the five-model layout in front of a text: `ensemble` and `tensorrt_llm_bls`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from backends.tensorrt_llm.asking import ask, inputs, llm, on, opened, text
from backends.tensorrt_llm.conftest import WriteModel
from penstock.core.config import ModelConfig, Parameter, TransactionPolicy
from penstock.core.errors import InvalidRequestError
from penstock.testing import RunningInstance

pytestmark = [pytest.mark.usefixtures("stand_in"), pytest.mark.usefixtures("release")]


@pytest.fixture(params=["ensemble", "tensorrt_llm_bls"])
async def front(
    version: WriteModel, release: str, stand_in: None, request: pytest.FixtureRequest
) -> AsyncIterator[Any]:
    async with opened(version(), ModelConfig(name=request.param)) as instance:
        yield instance


@pytest.mark.contract("TL-14")
async def test_a_text_goes_in_and_out(front: RunningInstance) -> None:
    given = inputs(max_tokens=3, temperature=0.5, top_k=2, top_p=0.25)
    (response,) = await ask(front, "hello", **given, stop_words=["x", ""], bad_words="y")
    assert text(response) == "hello w0 w1 w2"
    got = llm(front).sampling
    assert (got.temperature, got.top_k, got.top_p) == (0.5, 2, 0.25)
    assert (got.stop, got.bad) == (["x"], ["y"])
    (alone,) = await ask(front, **inputs(max_tokens=2), **on("exclude_input_in_output"))
    assert text(alone) == " w0 w1"


@pytest.mark.contract("TL-14")
async def test_a_stream_of_text_has_each_part_once(front: RunningInstance) -> None:
    responses = await ask(front, **inputs(max_tokens=30), **on("stream", "return_log_probs"))
    assert "".join(map(text, responses)) == "".join(f" w{number}" for number in range(30))
    counts = [one.outputs["output_log_probs"].shape[-1] for one in responses]
    assert sum(counts) == 30


@pytest.mark.contract("TL-14")
async def test_a_stream_may_have_the_text_so_far(version: WriteModel) -> None:
    parameters = {"accumulate_tokens": Parameter("true")}
    config = ModelConfig(name="tensorrt_llm_bls", parameters=parameters)
    async with opened(version(), config) as instance:
        responses = await ask(instance, **inputs(max_tokens=5), **on("stream"))
        assert text(responses[-1]) == " w0 w1 w2 w3 w4"


async def test_a_text_needs_its_length(front: RunningInstance) -> None:
    with pytest.raises(InvalidRequestError, match="input 'max_tokens' is needed"):
        await ask(front, "hello")


@pytest.mark.parametrize("name", ["stop_words", "bad_words"])
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["a"] * 257, "must hold at most 256 strings, not 257"),
        (["a" * ((1 << 14) + 1)], "must have at most 16384 characters together, not 16385"),
    ],
    ids=["many", "long"],
)
async def test_words_that_take_long_to_tokenize_are_refused(
    front: RunningInstance, name: str, words: list[str], why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=f"input '{name}' {why}"):
        await ask(front, **inputs(max_tokens=1, **{name: words}))


async def test_a_front_that_is_not_decoupled_does_not_stream(version: WriteModel) -> None:
    config = ModelConfig(name="ensemble", model_transaction_policy=TransactionPolicy(False))
    async with opened(version(), config) as instance:
        with pytest.raises(InvalidRequestError, match="only supported in decoupled mode"):
            await ask(instance, **inputs(max_tokens=2), **on("stream"))
