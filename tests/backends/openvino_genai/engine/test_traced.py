"""Traced requests: marks and facts of the generation, equal to what the metrics count."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from backends.conftest import write_settings
from backends.generation import PROMPT, start
from backends.openvino_genai.asking import ask, opened, settled
from backends.openvino_genai.scripted import ScriptedPipeline, sequences
from penstock.core.errors import InternalError, UnavailableError
from penstock.core.request import InferenceRequest, InferenceResponse, RequestScope
from penstock.core.timeline import Timeline, Trace
from penstock.testing import RunningInstance
from penstock_backends.language_model import GenerationRecord, record_of
from penstock_backends.openvino_genai.engine import GenAiEngine
from penstock_backends.openvino_genai.sequence import TokenSequence

MARKS = ["ENGINE_QUEUED", "PREFILL_START", "FIRST_TOKEN", "DECODE_END"]


def timeline() -> Timeline:
    return Trace(1).root


def record(timeline: Timeline) -> GenerationRecord:
    made = record_of(InferenceRequest("m", scope=RequestScope(timeline=timeline)), "scripted")
    assert made is not None
    return made


def names(timeline: Timeline) -> list[str]:
    return [name for name, _ in timeline.marks]


def engine(pipeline: ScriptedPipeline, running: int = 8) -> GenAiEngine:
    return GenAiEngine(pipeline, max_running=running, max_waiting=8)


async def everything(request: list[TokenSequence]) -> int:
    return len([response async for response in request[0].delivery.stream])


# -- the engine's loop, over a scripted pipeline ---------------------------------------------------


async def test_a_generation_is_marked_in_order() -> None:
    noted = timeline()
    request = sequences(record=record(noted), max_tokens=5)
    engine(ScriptedPipeline()).submit(request)
    await everything(request)
    assert names(noted) == MARKS
    times = [at for _, at in noted.marks]
    assert all(earlier <= later for earlier, later in pairwise(times))
    assert noted.facts["gen_ai.usage.output_tokens"] == 5
    assert noted.facts["gen_ai.response.finish_reasons"] == ["length"]


async def test_the_record_is_complete_before_the_last_response() -> None:
    """A model process sends what was recorded before that response."""
    noted = timeline()
    request = sequences(record=record(noted), max_tokens=2)
    at_end: list[str] = []

    def note(response: InferenceResponse) -> InferenceResponse:
        at_end[:] = names(noted)
        return response

    request[0].delivery.stream.transform = note
    engine(ScriptedPipeline()).submit(request)
    await everything(request)
    assert at_end == MARKS


async def test_candidates_add_up() -> None:
    noted = timeline()
    request = sequences(3, record=record(noted), max_tokens=4)
    engine(ScriptedPipeline()).submit(request)
    await everything(request)
    assert names(noted) == MARKS
    assert noted.facts["gen_ai.usage.output_tokens"] == 12
    assert noted.facts["gen_ai.response.finish_reasons"] == ["length"] * 3


async def test_tokens_before_a_stop_string_count_as_in_the_metrics() -> None:
    noted = timeline()
    runner = engine(ScriptedPipeline())
    request = sequences(record=record(noted), max_tokens=50, stop="2")
    runner.submit(request)
    await everything(request)
    counted = runner.metrics()["penstock_llm_generation_tokens_total"]
    assert noted.facts["gen_ai.usage.output_tokens"] == counted == 3
    assert noted.facts["gen_ai.response.finish_reasons"] == ["stop"]


async def test_a_cancelled_generation_tells_its_tokens_so_far() -> None:
    noted = timeline()
    runner = engine(ScriptedPipeline())
    request = sequences(record=record(noted), max_tokens=50)
    runner.submit(request)
    stream = request[0].delivery.stream
    await anext(stream)
    await anext(stream)
    stream.close()
    counted = runner.metrics()["penstock_llm_generation_tokens_total"]
    assert noted.facts["gen_ai.usage.output_tokens"] == counted >= 2
    assert names(noted) == MARKS
    assert "gen_ai.response.finish_reasons" not in noted.facts


async def test_a_request_that_never_ran_was_only_queued() -> None:
    noted = timeline()
    runner = engine(ScriptedPipeline(), running=1)
    first, waiting = sequences(max_tokens=5), sequences(record=record(noted), max_tokens=5)
    runner.submit(first)
    runner.submit(waiting)
    waiting[0].delivery.stream.close()
    assert names(noted) == ["ENGINE_QUEUED", "DECODE_END"]
    runner.cancel(waiting)
    await everything(first)


async def test_a_failing_step_ends_the_record() -> None:
    noted = timeline()
    request = sequences(record=record(noted), max_tokens=50)
    engine(ScriptedPipeline(fail_at=3)).submit(request)
    with pytest.raises(UnavailableError):
        await everything(request)
    assert names(noted) == MARKS
    assert noted.facts["gen_ai.usage.output_tokens"] == 2


async def test_a_request_that_the_pipeline_refuses_was_not_scheduled() -> None:
    noted = timeline()
    pipeline = ScriptedPipeline()
    pipeline.refuse = RuntimeError("no such thing")
    request = sequences(record=record(noted), max_tokens=50)
    engine(pipeline).submit(request)
    with pytest.raises(InternalError):
        await everything(request)
    assert names(noted) == ["ENGINE_QUEUED", "DECODE_END"]


# -- the real engine -------------------------------------------------------------------------------


async def ask_traced(instance: RunningInstance, **given: Any) -> tuple[Timeline, Any]:
    noted = timeline()
    replies = [r async for r in start(instance, traced_by=noted, **given)]
    return noted, replies


def totals(instance: RunningInstance) -> dict[str, float]:
    """The sum of each histogram of the engine."""
    histograms: Any = instance.backend.histograms()
    return {name: histogram.total for name, histogram in histograms.items()}


async def test_a_real_generation_equals_its_metrics(instance: RunningInstance) -> None:
    pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")
    await ask(instance, max_tokens=2)
    before, earlier = instance.backend.metrics(), totals(instance)
    wanted = {"return_num_output_tokens": True, "return_num_input_tokens": True}
    noted, replies = await ask_traced(instance, inputs=wanted, max_tokens=9)
    after = instance.backend.metrics()
    facts = noted.facts
    assert names(noted) == MARKS
    for fact, metric in [
        ("gen_ai.usage.input_tokens", "penstock_llm_prefill_tokens_total"),
        ("gen_ai.usage.output_tokens", "penstock_llm_generation_tokens_total"),
    ]:
        assert facts[fact] == after[metric] - before[metric]
    outputs = [reply.outputs for reply in replies]
    assert facts["gen_ai.usage.output_tokens"] == 9
    assert sum(o["num_output_tokens"].numpy()[0] for o in outputs) == 9
    assert facts["gen_ai.usage.input_tokens"] == outputs[0]["num_input_tokens"].numpy()[0]
    marks = dict(noted.marks)
    first = (marks["FIRST_TOKEN"] - marks["ENGINE_QUEUED"]) / 1e6
    sums = {name.removeprefix("penstock_llm_"): s for name, s in totals(instance).items()}
    since = {name: number - earlier[f"penstock_llm_{name}"] for name, number in sums.items()}
    whole = marks["DECODE_END"] - marks["ENGINE_QUEUED"]
    waited = marks["PREFILL_START"] - marks["ENGINE_QUEUED"]
    decoded = marks["DECODE_END"] - marks["FIRST_TOKEN"]
    assert since == {
        "queue_seconds": pytest.approx(waited / 1e9),
        "time_to_first_token_seconds": pytest.approx(first / 1e3),
        "inter_token_seconds": pytest.approx(decoded / 1e9),
        "request_seconds": pytest.approx(whole / 1e9),
        "prompt_tokens": facts["gen_ai.usage.input_tokens"],
        "generated_tokens": facts["gen_ai.usage.output_tokens"],
        "time_per_output_token_seconds": pytest.approx(decoded / 8e9),
    }
    assert facts["penstock.llm.queue_time_ms"] == pytest.approx(waited / 1e6)
    assert facts["penstock.llm.total_time_ms"] == pytest.approx(whole / 1e6)
    assert facts["penstock.llm.time_per_output_token_ms"] == pytest.approx(decoded / 8e6)
    assert facts["penstock.llm.wasted_tokens"] == 0
    rate = 8e9 / (marks["DECODE_END"] - marks["FIRST_TOKEN"])
    assert facts["penstock.llm.time_to_first_token_ms"] == pytest.approx(first)
    assert facts["penstock.llm.decode_tokens_per_second"] == rate
    assert facts["gen_ai.provider.name"] == "openvino_genai"
    assert facts["gen_ai.request.temperature"] == 0.0
    assert facts["gen_ai.request.stream"] is True
    assert facts["gen_ai.request.max_tokens"] == 9
    assert facts["gen_ai.response.finish_reasons"] == ["length"]


async def test_neither_prompt_nor_text_is_recorded(instance: RunningInstance) -> None:
    pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")
    noted, replies = await ask_traced(instance, max_tokens=12, stop=["%secret%"])
    text = b"".join(r.outputs["text_output"].elements()[0] for r in replies).decode()
    told = repr(noted.facts) + repr(noted.marks)
    assert not [part for part in (PROMPT, text.strip(), "%secret%") if part in told]


async def test_leaving_a_real_generation_tells_its_tokens(own_gguf_version: Path) -> None:
    pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")
    write_settings(own_gguf_version, num_kv_blocks=64)
    async with opened(own_gguf_version) as instance:
        noted = timeline()
        async with aclosing(start(instance, traced_by=noted, max_tokens=900)) as responses:
            await anext(responses)
            await asyncio.sleep(0)
        await settled()
        counted = instance.backend.metrics()["penstock_llm_generation_tokens_total"]
    assert noted.facts["gen_ai.usage.output_tokens"] == counted > 0
    assert names(noted) == MARKS
