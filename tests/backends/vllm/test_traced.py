"""Traced requests: vLLM's times and counts, with a scripted engine in place of `AsyncLLM`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from backends.generation import until
from backends.vllm.scripted import ScriptedLlm, vllm
from penstock.core.request import InferenceRequest, RequestScope
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.core.timeline import Timeline, Trace
from penstock_backends.vllm import VllmBackend

MARKS = ["ENGINE_QUEUED", "PREFILL_START", "FIRST_TOKEN", "DECODE_END"]


def request(timeline: Timeline | None, *, stream: bool, max_tokens: int = 5) -> InferenceRequest:
    inputs = {
        "text_input": Tensor.from_strings(["a prompt"]),
        "stream": Tensor.from_numpy(np.array([stream])),
    }
    parameters = {"max_tokens": max_tokens}
    return InferenceRequest(
        "chatty", inputs=inputs, parameters=parameters, scope=RequestScope(timeline=timeline)
    )


async def ask(
    made: VllmBackend, timeline: Timeline | None, *, stream: bool, most: int | None = None
) -> list[str]:
    """The texts of the answer; with `most`, of so many responses, after which the client leaves."""
    (outcome,) = await made.execute([request(timeline, stream=stream)])
    assert isinstance(outcome, ResponseStream)
    texts: list[str] = []
    async for response in outcome:
        texts.append(response.outputs["text_output"].elements()[0].decode())
        if len(texts) == most:
            outcome.close()
            break
    return texts


def names(timeline: Timeline) -> list[str]:
    return [name for name, _ in timeline.marks]


def ns(seconds: float) -> int:
    return int(seconds * 1e9)


@pytest.mark.parametrize("stream", [False, True])
async def test_marks_are_the_engines_times(monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    llm, noted = ScriptedLlm(), Trace(1).root
    await ask(vllm(monkeypatch, llm), noted, stream=stream)
    stats = llm.latest
    times = (stats.queued_ts, stats.scheduled_ts, stats.first_token_ts, stats.last_token_ts)
    assert noted.marks == list(zip(MARKS, map(ns, times), strict=True))
    facts = noted.facts
    assert facts["gen_ai.usage.output_tokens"] == stats.num_generation_tokens == 5
    assert facts["gen_ai.usage.input_tokens"] == 3
    assert facts["gen_ai.usage.cache_read.input_tokens"] == 2
    assert facts["penstock.llm.preemptions"] == 2
    assert facts["gen_ai.response.finish_reasons"] == ["length"]
    assert facts["gen_ai.provider.name"] == "vllm"
    assert facts["gen_ai.request.model"] == "chatty"
    assert facts["gen_ai.response.model"] == "tiny"
    assert facts["gen_ai.request.stream"] is stream
    assert facts["penstock.llm.time_to_first_token_ms"] == 250.0  # as in vLLM's own metric
    decode = ns(stats.last_token_ts) - ns(stats.first_token_ts)
    assert facts["penstock.llm.decode_tokens_per_second"] == 4e9 / decode


@pytest.mark.parametrize("stream", [False, True])
async def test_a_traced_answer_is_that_of_an_untraced_request(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    made = vllm(monkeypatch, ScriptedLlm())
    untraced = await ask(made, None, stream=stream)
    assert await ask(made, Trace(1).root, stream=stream) == untraced
    assert "".join(untraced).endswith("xxxxx")


async def test_an_engine_without_statistics_is_timed_from_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted = Trace(1).root
    await ask(vllm(monkeypatch, ScriptedLlm(stats=False)), noted, stream=True)
    assert names(noted) == ["ENGINE_QUEUED", "FIRST_TOKEN", "DECODE_END"]
    assert noted.facts["gen_ai.usage.output_tokens"] == 5


@pytest.mark.parametrize("ahead", [-600.0, 600.0])
async def test_times_of_another_clock_are_not_taken(
    monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    """An engine's process may run on another host."""
    llm, noted, begun = ScriptedLlm(ahead=ahead), Trace(1).root, time.monotonic_ns()
    await ask(vllm(monkeypatch, llm), noted, stream=True)
    assert names(noted) == ["ENGINE_QUEUED", "FIRST_TOKEN", "DECODE_END"]
    assert all(begun <= at <= time.monotonic_ns() for _, at in noted.marks)


async def test_leaving_a_stream_tells_the_tokens_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Trace(1).root
    await ask(vllm(monkeypatch, ScriptedLlm(endless=True)), noted, stream=True, most=3)
    assert names(noted) == MARKS
    assert noted.facts["gen_ai.usage.output_tokens"] == 3
    assert "gen_ai.response.finish_reasons" not in noted.facts


async def test_leaving_before_a_whole_answer_tells_the_tokens_so_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine has reported one token only; its statistics know the others."""
    llm, noted = ScriptedLlm(endless=True), Trace(1).root
    (outcome,) = await vllm(monkeypatch, llm).execute([request(noted, stream=False)])
    assert isinstance(outcome, ResponseStream)
    await until(lambda: llm.latest is not None and llm.latest.num_generation_tokens >= 4)
    outcome.close()
    assert names(noted) == MARKS
    assert noted.facts["gen_ai.usage.output_tokens"] == 4


async def test_leaving_before_the_first_token_tells_that_it_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted, llm = Trace(1).root, ScriptedLlm()
    llm.steps = False
    (outcome,) = await vllm(monkeypatch, llm).execute([request(noted, stream=False)])
    assert isinstance(outcome, ResponseStream)
    await until(lambda: bool(llm.collectors))
    outcome.close()
    assert names(noted) == ["ENGINE_QUEUED", "DECODE_END"]
    assert noted.facts["gen_ai.usage.output_tokens"] == 0


async def test_a_pushed_stream_is_recorded_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Trace(1).root
    asked = request(noted, stream=True)
    unmerged = {**asked.parameters, "penstock_coalesce": False}
    asked = InferenceRequest(
        "chatty", inputs=asked.inputs, parameters=unmerged, scope=RequestScope(timeline=noted)
    )
    (outcome,) = await vllm(monkeypatch, ScriptedLlm()).execute([asked])
    assert isinstance(outcome, ResponseStream)
    assert len([response async for response in outcome]) == 5
    assert names(noted) == MARKS


# -- vLLM's own spans ------------------------------------------------------------------------------


async def headers(
    monkeypatch: pytest.MonkeyPatch, timeline: Timeline | None, *, spans: bool = True
) -> Any:
    """The `trace_headers` that the engine was given."""
    llm = ScriptedLlm()
    await ask(vllm(monkeypatch, llm, spans=spans), timeline, stream=True)
    return llm.given["trace_headers"]


async def test_an_exported_request_passes_its_span_on(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Trace(1, propagated=True).root
    given = await headers(monkeypatch, noted)
    assert given == {"traceparent": noted.context.traceparent}


async def test_other_requests_pass_nothing_on(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = Trace(1, propagated=True).root
    assert await headers(monkeypatch, None) is None
    assert await headers(monkeypatch, Trace(1).root) is None
    assert await headers(monkeypatch, exported, spans=False) is None
