"""Cancellation with the real engine, and its failures."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from backends.conftest import write_settings
from backends.generation import start, until, usage
from backends.openvino_genai.asking import ask, exhaust, opened, settled
from backends.openvino_genai.scripted import ScriptedPipeline, Words, sampling
from penstock.core.errors import UnavailableError
from penstock.core.stream import ResponseStream
from penstock.testing import RunningInstance
from penstock_backends.language_model import Answer, Delivery, GenerationRequest, GenerationTimes
from penstock_backends.openvino_genai.engine import GenAiEngine
from penstock_backends.openvino_genai.sequence import TokenSequence

pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")


# -- cancelling ------------------------------------------------------------------------------------


async def test_cancelling_while_generating_frees_the_cache(instance: RunningInstance) -> None:
    async with aclosing(start(instance, max_tokens=900)) as responses:
        await anext(responses)
        running, _, cache = usage(instance)
        assert running == 1
        assert cache > 0
    await settled()
    assert usage(instance) == (0, 0, 0.0)
    assert instance.backend.metrics()["penstock_llm_cancelled_requests_total"] == 1


async def test_cancelling_in_the_prompt_frees_the_cache(own_gguf_version: Path) -> None:
    """The prompt takes many steps, and the client leaves after the first of them."""
    write_settings(own_gguf_version, num_kv_blocks=64, max_num_batched_tokens=32)
    async with opened(own_gguf_version) as instance:
        request = start(instance, "word " * 400, max_tokens=16)
        task = asyncio.ensure_future(anext(request))
        await until(lambda: instance.backend.metrics()["penstock_llm_engine_steps_total"] == 2)
        assert 0 < usage(instance)[2] < 0.5
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await settled()
        assert usage(instance) == (0, 0, 0.0)
        assert instance.backend.metrics()["penstock_llm_generation_tokens_total"] == 0
        assert (await ask(instance, "word " * 400, max_tokens=4)).finals[-1]


async def test_cancelling_while_waiting_takes_no_turn(own_gguf_version: Path) -> None:
    write_settings(own_gguf_version, num_kv_blocks=64, max_num_seqs=1)
    async with opened(own_gguf_version) as instance:
        async with aclosing(start(instance, max_tokens=900)) as first:
            await anext(first)
            waiting = asyncio.ensure_future(anext(start(instance, max_tokens=900)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert usage(instance)[:2] == (1, 1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert usage(instance)[:2] == (1, 0)
            await anext(first)
        await settled()
        assert usage(instance) == (0, 0, 0.0)


async def test_freed_blocks_serve_the_next_request(own_gguf_version: Path) -> None:
    """A cache for one long request at a time, many of them left half way."""
    write_settings(own_gguf_version, num_kv_blocks=16, enable_prefix_caching=False)
    async with opened(own_gguf_version) as instance:
        for _ in range(6):
            async with aclosing(start(instance, max_tokens=480)) as responses:
                for _ in range(40):
                    await anext(responses)
        assert len((await ask(instance, max_tokens=480)).text) > 1000


# -- what is wasted, over a scripted pipeline ------------------------------------------------------


def started(pipeline: ScriptedPipeline) -> tuple[GenAiEngine, ResponseStream]:
    """An engine that has a request, and the stream of its responses."""
    engine = GenAiEngine(pipeline, max_running=1, max_waiting=8)
    sequences: list[TokenSequence] = []
    answer = Answer(GenerationRequest("P", stream=True, prepend_prompt=False), 1, 1)
    times = GenerationTimes(engine.statistics, 1)
    delivery = Delivery(answer, lambda: engine.cancel(sequences), times=times)
    chosen = sampling(max_tokens=500)
    sequences += [TokenSequence(delivery, c, [1], chosen, Words()) for c in answer.candidates]
    engine.submit(sequences)
    return engine, delivery.stream


async def left(pipeline: ScriptedPipeline, stream: ResponseStream, *, steps: int) -> None:
    """Have the client leave, which the engine hears so many steps later."""
    await anext(stream)
    at, made = time.monotonic_ns(), pipeline.steps
    await until(lambda: pipeline.steps == made + steps)
    stream.close(at)
    made = pipeline.handles[0].token
    await settled()
    assert pipeline.handles[0].token == made


@pytest.mark.parametrize("steps", [0, 1])
async def test_of_who_leaves_only_the_step_that_runs_is_wasted(steps: int) -> None:
    """The server tells when the client left; where a step ran just then, the engine hears late."""
    pipeline = ScriptedPipeline()
    engine, stream = started(pipeline)
    await left(pipeline, stream, steps=steps)
    metrics = engine.metrics()
    assert metrics["penstock_llm_wasted_tokens_total"] == steps
    assert metrics["penstock_llm_running_requests"] == metrics["penstock_llm_waiting_requests"] == 0
    assert not pipeline.busy


# -- failing ---------------------------------------------------------------------------------------


async def test_a_failing_engine_fails_its_requests_and_its_health(
    instance: RunningInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await instance.backend.healthy()
    backend: Any = instance.backend

    def step() -> None:
        raise RuntimeError("the kernel said no")

    async with aclosing(start(instance, max_tokens=900)) as responses:
        await anext(responses)
        monkeypatch.setattr(backend._engine._pipeline, "step", step)
        with pytest.raises(UnavailableError, match="the engine failed: the kernel said no"):
            await exhaust(responses)
    assert not await instance.backend.healthy()
    with pytest.raises(UnavailableError, match="the kernel said no"):
        await ask(instance)


async def test_unloading_fails_running_requests(gguf_version: Path) -> None:
    async with opened(gguf_version) as instance:
        responses = start(instance, max_tokens=900)
        await anext(responses)
    with pytest.raises(UnavailableError, match="the model is being unloaded"):
        await exhaust(responses)
