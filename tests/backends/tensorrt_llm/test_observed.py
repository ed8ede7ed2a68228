"""Metrics and timelines of requests, over the stand-in."""

from __future__ import annotations

from typing import Any, cast

import pytest

from backends.generation import until
from backends.tensorrt_llm.asking import ask, llm, on, sampling
from fakes.values import scoped
from penstock.core.request import InferenceRequest, RequestScope
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.core.timeline import Trace
from penstock.testing import RunningInstance

pytestmark = [pytest.mark.usefixtures("stand_in"), pytest.mark.usefixtures("release")]


@pytest.mark.contract("TL-24", "TL-26", "TL-25", "TL-27", "ME-33")
async def test_reports_of_the_engine_become_metrics(instance: RunningInstance) -> None:
    answers = instance.infer({"text_input": "one two three @endless", **on("streaming")})
    await anext(answers)
    await until(
        lambda: (
            instance.backend.metrics().get('nv_trt_llm_request_metrics{request_type="active"}') == 1
        ),
        0.01,
    )
    metrics = instance.backend.metrics()
    blocks = "nv_trt_llm_kv_cache_block_metrics"
    requests = "nv_trt_llm_request_metrics"
    assert metrics["penstock_llm_running_requests"] == 1
    assert metrics["penstock_llm_kv_cache_usage"] == 0.01
    assert metrics["penstock_llm_prefill_tokens_total"] == 4
    assert {
        name: metrics[f'{requests}{{request_type="{name}"}}']
        for name in ("waiting", "context", "scheduled", "max", "active")
    } == {
        "waiting": 0,
        "context": 0,
        "scheduled": 1,
        "max": 64,
        "active": 1,
    }
    assert {
        name: metrics[f'{blocks}{{kv_cache_block_type="{name}"}}']
        for name in ("fraction", "tokens_per", "used", "free", "max")
    } == {
        "fraction": 0.01,
        "tokens_per": 32,
        "used": 1,
        "free": 99,
        "max": 100,
    }
    assert metrics['nv_trt_llm_runtime_memory_metrics{memory_type="gpu"}'] == 20
    await answers.aclose()
    await until(lambda: llm(instance).active == 0)
    await until(lambda: instance.backend.metrics()["penstock_llm_running_requests"] == 0)
    assert instance.backend.metrics()[f'{requests}{{request_type="active"}}'] == 0


async def test_drafts_of_steps_are_counted(instance: RunningInstance) -> None:
    await ask(instance, **sampling(max_tokens=3))
    steps = 'nv_trt_llm_general_metrics{general_type="iteration_counter"}'
    await until(lambda: instance.backend.metrics().get(steps, 0) > 2, 0.01)
    metrics = instance.backend.metrics()
    drafts = metrics["penstock_llm_spec_draft_tokens_total"]
    assert drafts == 3 * metrics[steps]
    assert metrics["penstock_llm_spec_accepted_tokens_total"] * 3 == drafts * 2


async def test_tokens_from_the_prefix_cache_are_told_where_the_engine_does(
    instance: RunningInstance, release: str
) -> None:
    """Release 1.2 does not; the stand-in has all but one of a prompt."""
    cached = None if release == "1.2" else 2
    timeline = Trace(1).root
    inputs = {"text_input": "a b c", **sampling(max_tokens=3)}
    assert [
        response async for response in instance.infer(inputs, scope=RequestScope(timeline=timeline))
    ]
    assert timeline.facts.get("gen_ai.usage.cache_read.input_tokens") == cached
    assert instance.backend.metrics().get("penstock_llm_cached_tokens_total") == cached


async def test_tokens_are_reported_to_the_server(instance: RunningInstance, release: str) -> None:
    told: list[tuple[int, int, int]] = []
    inputs = {"text_input": Tensor.from_strings(["a b c"])}
    request = scoped(
        InferenceRequest("m", inputs=inputs), report_usage=lambda *counts: told.append(counts)
    )
    (outcome,) = await instance.backend.execute([request])
    assert [response async for response in cast(ResponseStream, outcome)]
    cached = 0 if release == "1.2" else 2
    assert {counts[:2] for counts in told} == {(3, cached)}
    assert told[0][2] == 1


async def test_requests_are_observed(instance: RunningInstance) -> None:
    await ask(instance, **on("streaming"), **sampling(max_tokens=3))
    await ask(instance, **sampling(max_tokens=3))
    histograms: Any = instance.backend.histograms()
    counted = {name: histogram.buckets[-1][1] for name, histogram in histograms.items()}
    assert counted["penstock_llm_request_seconds"] == 2
    assert counted["penstock_llm_time_to_first_token_seconds"] == 1


@pytest.mark.parametrize(("prompt", "wasted"), [("@late", 2), ("@endless", 0)])
async def test_what_the_engine_makes_after_an_abort_is_wasted(
    instance: RunningInstance, prompt: str, wasted: int
) -> None:
    timeline = Trace(1).root
    asked = {"text_input": prompt, **on("streaming")}
    answers = instance.infer(asked, scope=RequestScope(timeline=timeline))
    await anext(answers)
    await answers.aclose()
    await until(lambda: llm(instance).active == 0)
    assert instance.backend.metrics()["penstock_llm_wasted_tokens_total"] == wasted
    assert timeline.facts["penstock.llm.wasted_tokens"] == 0  # it was told at once


async def test_a_traced_request_tells_of_its_tokens(instance: RunningInstance) -> None:
    timeline = Trace(1).root
    inputs = {"text_input": "a b c", **sampling(max_tokens=3, temperature=0.5)}
    responses = [one async for one in instance.infer(inputs, scope=RequestScope(timeline=timeline))]
    assert len(responses) == 1
    facts = timeline.facts
    assert facts["gen_ai.provider.name"] == "tensorrt_llm"
    assert facts["gen_ai.usage.input_tokens"] == 3
    assert facts["gen_ai.usage.output_tokens"] == 3
    assert facts["gen_ai.response.finish_reasons"] == ["length"]
    assert facts["gen_ai.request.temperature"] == 0.5
