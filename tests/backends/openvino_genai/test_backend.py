"""The backend with the real engine and the demo's model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backends.conftest import F32, write_settings
from penstock.core.config import InstanceKind, ModelConfig, TransactionPolicy
from penstock.core.errors import (
    ConfigError,
    InvalidRequestError,
    ModelLoadError,
    RejectedError,
    UnavailableError,
)
from penstock.core.request import Parameters
from penstock.testing import RunningInstance, running
from penstock_backends.openvino_genai import OpenVinoGenAiBackend

pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")

PROMPT = "The with statement is used to"
GREEDY = {"temperature": 0, "ignore_eos": True}


@dataclass
class Reply:
    """All responses to one request."""

    texts: list[str]
    finals: list[bool]
    outputs: list[dict[str, Any]]

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def all(self, name: str) -> list[Any]:
        return [output[name] for output in self.outputs]


async def ask(
    instance: RunningInstance, prompt: str = PROMPT, *, inputs: Any = None, **sampling: Any
) -> Reply:
    """A streamed request, unless `inputs` say otherwise."""
    tensors: dict[str, Any] = {
        "text_input": prompt,
        "stream": True,
        "sampling_parameters": json.dumps(GREEDY | sampling),
        **(inputs or {}),
    }
    reply = Reply([], [], [])
    async for response in instance.infer(tensors):
        reply.outputs.append(
            {
                name: [e.decode() for e in t.elements()]
                if t.datatype == "BYTES"
                else t.numpy().tolist()
                for name, t in response.outputs.items()
            }
        )
        reply.texts.append(reply.outputs[-1]["text_output"][0])
        reply.finals.append(response.final)
    return reply


def opened(version: Path) -> AbstractAsyncContextManager[RunningInstance]:
    return running(OpenVinoGenAiBackend, ModelConfig(name="m"), version)


@pytest.fixture
async def instance(gguf_version: Path) -> AsyncIterator[RunningInstance]:
    async with opened(gguf_version) as instance:
        yield instance


# -- the face ------------------------------------------------------------------------------------


async def test_a_stream_is_the_whole_text_in_pieces(instance: RunningInstance) -> None:
    whole = await ask(instance, inputs={"stream": False}, max_tokens=20)
    stream = await ask(instance, max_tokens=20)
    assert whole.texts == [PROMPT + stream.text]
    assert len(stream.texts) > 10
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


# -- what does not fit ---------------------------------------------------------------------------


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
async def test_a_request_that_cannot_be_served_says_why(
    instance: RunningInstance, prompt: str, sampling: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        await ask(instance, prompt, **sampling)
    assert (await ask(instance, max_tokens=2)).finals[-1]


async def test_generation_ends_with_the_context(instance: RunningInstance) -> None:
    answered = await ask(
        instance,
        inputs={"return_finish_reason": True, "return_num_output_tokens": True},
        max_tokens=2000,
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


# -- cancelling ----------------------------------------------------------------------------------


def usage(instance: RunningInstance) -> tuple[float, float, float]:
    metrics = instance.backend.metrics()
    return (
        metrics["penstock_llm_running_requests"],
        metrics["penstock_llm_waiting_requests"],
        metrics["penstock_llm_kv_cache_usage"],
    )


async def until(condition: Callable[[], bool]) -> None:
    """Let the engine step until `condition` holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the engine tells nobody
            await asyncio.sleep(0)


async def exhaust(responses: AsyncIterator[Any]) -> list[str]:
    return [r.outputs["text_output"].elements()[0].decode() async for r in responses]


async def settled(instance: RunningInstance) -> None:
    """Long enough for one more step."""
    for _ in range(20):
        await asyncio.sleep(0)


def start(instance: RunningInstance, prompt: str, max_tokens: int) -> Any:
    sampling = json.dumps(GREEDY | {"max_tokens": max_tokens})
    return instance.infer({"text_input": prompt, "stream": True, "sampling_parameters": sampling})


async def test_cancelling_while_generating_frees_the_cache(instance: RunningInstance) -> None:
    async with aclosing(start(instance, PROMPT, 900)) as responses:
        await anext(responses)
        running, _, cache = usage(instance)
        assert running == 1
        assert cache > 0
    await settled(instance)
    assert usage(instance) == (0, 0, 0.0)
    assert instance.backend.metrics()["penstock_llm_cancelled_requests_total"] == 1


async def test_cancelling_in_the_prompt_frees_the_cache(own_gguf_version: Path) -> None:
    """The prompt takes many steps, and the client leaves after the first of them."""
    write_settings(own_gguf_version, num_kv_blocks=64, max_num_batched_tokens=32)
    async with opened(own_gguf_version) as instance:
        request = start(instance, "word " * 400, 16)
        task = asyncio.ensure_future(anext(request))
        await until(lambda: instance.backend.metrics()["penstock_llm_engine_steps_total"] == 2)
        assert 0 < usage(instance)[2] < 0.5
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await settled(instance)
        assert usage(instance) == (0, 0, 0.0)
        assert instance.backend.metrics()["penstock_llm_generation_tokens_total"] == 0
        assert (await ask(instance, "word " * 400, max_tokens=4)).finals[-1]


async def test_cancelling_while_waiting_takes_no_turn(own_gguf_version: Path) -> None:
    write_settings(own_gguf_version, num_kv_blocks=64, max_num_seqs=1)
    async with opened(own_gguf_version) as instance:
        async with aclosing(start(instance, PROMPT, 900)) as first:
            await anext(first)
            waiting = asyncio.ensure_future(anext(start(instance, PROMPT, 900)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert usage(instance)[:2] == (1, 1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert usage(instance)[:2] == (1, 0)
            await anext(first)
        await settled(instance)
        assert usage(instance) == (0, 0, 0.0)


async def test_freed_blocks_serve_the_next_request(own_gguf_version: Path) -> None:
    """A cache for one long request at a time, many of them left half way."""
    write_settings(own_gguf_version, num_kv_blocks=16, enable_prefix_caching=False)
    async with opened(own_gguf_version) as instance:
        for _ in range(12):
            async with aclosing(start(instance, PROMPT, 480)) as responses:
                for _ in range(40):
                    await anext(responses)
        assert len((await ask(instance, max_tokens=480)).texts) > 100


# -- failing -------------------------------------------------------------------------------------


async def test_a_failing_engine_fails_its_requests_and_its_health(
    instance: RunningInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await instance.backend.healthy()
    backend: Any = instance.backend

    def step() -> None:
        raise RuntimeError("the kernel said no")

    async with aclosing(start(instance, PROMPT, 900)) as responses:
        await anext(responses)
        monkeypatch.setattr(backend._engine._pipeline, "step", step)
        with pytest.raises(UnavailableError, match="the engine failed: the kernel said no"):
            await exhaust(responses)
    assert not await instance.backend.healthy()
    with pytest.raises(UnavailableError, match="the kernel said no"):
        await ask(instance)


async def test_unloading_ends_what_runs(gguf_version: Path) -> None:
    async with opened(gguf_version) as instance:
        responses = start(instance, PROMPT, 900)
        await anext(responses)
    with pytest.raises(UnavailableError, match="the model is being unloaded"):
        await exhaust(responses)


# -- a slow reader -------------------------------------------------------------------------------


async def test_a_slow_reader_gets_merged_responses(instance: RunningInstance) -> None:
    plain = await ask(instance, max_tokens=300)
    async with aclosing(start(instance, PROMPT, 300)) as responses:
        first = await anext(responses)
        await until(lambda: not usage(instance)[0])
        texts = [first.outputs["text_output"].elements()[0].decode(), *await exhaust(responses)]
    assert "".join(texts) == plain.text
    assert len(texts) < 20


# -- loading -------------------------------------------------------------------------------------


async def load(version: Path, **settings: Any) -> None:
    write_settings(version, **settings)
    async with opened(version):
        pass


async def test_an_unknown_key_fails_the_load(own_gguf_version: Path) -> None:
    with pytest.raises(ModelLoadError, match="unknown key 'kv_blocks'"):
        await load(own_gguf_version, kv_blocks=1)


async def test_an_unknown_property_fails_the_load(own_gguf_version: Path) -> None:
    with pytest.raises(ModelLoadError, match="Unsupported property NO_SUCH_THING"):
        await load(own_gguf_version, properties=F32 | {"NO_SUCH_THING": "1"})


async def test_a_model_without_weights_fails_the_load(own_gguf_version: Path) -> None:
    model = own_gguf_version / "model.gguf"
    head = model.read_bytes()[:400_000]
    model.unlink()
    model.write_bytes(head)
    with pytest.raises(ModelLoadError, match=r"model\.gguf"):
        await load(own_gguf_version)


async def test_a_tokenizer_that_is_none_fails_the_load(own_gguf_version: Path) -> None:
    tokenizer = own_gguf_version / "tokenizer.json"
    tokenizer.unlink()
    tokenizer.write_text("{}")
    with pytest.raises(ModelLoadError, match=r"cannot read '.*tokenizer\.json'"):
        await load(own_gguf_version)


async def test_a_tokenizer_of_another_model_fails_the_load(own_gguf_version: Path) -> None:
    """Its tokens would lie outside the model's vocabulary, which the engine does not check."""
    tokenizer = own_gguf_version / "tokenizer.json"
    content = json.loads(tokenizer.read_text())
    content["model"]["vocab"] |= {f"extra{i}": 4096 + i for i in range(100)}
    tokenizer.unlink()
    tokenizer.write_text(json.dumps(content))
    with pytest.raises(ModelLoadError, match="do not belong together"):
        await load(own_gguf_version)


async def test_without_model_json_the_model_is_found(own_gguf_version: Path) -> None:
    async with opened(own_gguf_version) as instance:
        assert (await ask(instance, max_tokens=2)).finals[-1]


async def test_the_decoupled_policy_is_mandatory(gguf_version: Path) -> None:
    config = ModelConfig(name="m", model_transaction_policy=TransactionPolicy(False))
    with pytest.raises(ConfigError, match="decoupled model transaction policy"):
        async with running(OpenVinoGenAiBackend, config, gguf_version):
            pass


async def test_an_instance_belongs_on_the_cpu(instance: RunningInstance) -> None:
    assert [group.kind for group in instance.config.instance_group] == [InstanceKind.KIND_CPU]
