"""Times, tokens and spans of traced requests, with the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib import import_module
from typing import Any

import pytest

from backends.exchanging import application, begin, whole
from backends.generation import PROMPT, plain, start, until, usage
from penstock.core.http_exchange import HttpExchange
from penstock.core.request import ExchangePart, InferenceRequest, RequestScope, Sender
from penstock.core.timeline import Timeline, Trace
from penstock.metrics.series_name import split_series_name
from penstock.testing import RunningInstance

pytestmark = pytest.mark.asyncio(loop_scope="session")

trace: Any = import_module("opentelemetry.trace")
messages: Any = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

MARKS = ["ENGINE_QUEUED", "PREFILL_START", "FIRST_TOKEN", "DECODE_END"]
TOKENS = ("penstock_llm_prefill_tokens_total", "penstock_llm_generation_tokens_total")


def counted(instance: RunningInstance) -> list[float]:
    """Tokens of prompts and of answers, as the metrics count them."""
    metrics = instance.backend.metrics()
    return [metrics[name] for name in TOKENS]


def noted(timeline: Timeline) -> list[Any]:
    facts = timeline.facts
    return [facts["gen_ai.usage.input_tokens"], facts["gen_ai.usage.output_tokens"]]


def totals(instance: RunningInstance) -> dict[str, float]:
    """The sum of each histogram of the engine."""
    histograms: Any = instance.backend.histograms()
    return {name: histogram.total for name, histogram in histograms.items()}


async def ask(instance: RunningInstance, timeline: Timeline | None, **given: Any) -> list[Any]:
    return [plain(r) async for r in start(instance, traced_by=timeline, **given)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("logprobs", [None, 1])
async def test_a_traced_request_equals_metrics_and_an_untraced_one(
    instance: RunningInstance, stream: bool, logprobs: int | None
) -> None:
    wanted: dict[str, Any] = {"stream": stream}
    wanted |= {f"return_{name}": True for name in ("num_output_tokens", "finish_reason")}
    sampling: dict[str, Any] = {"max_tokens": 9}
    if logprobs is not None:
        sampling["logprobs"] = logprobs
        wanted["return_logprobs"] = True
    untraced = await ask(instance, None, inputs=wanted, **sampling)
    before, timeline, earlier = counted(instance), Trace(1).root, totals(instance)
    replies = await ask(instance, timeline, inputs=wanted, **sampling)
    after, later = counted(instance), totals(instance)
    if stream:
        texts = ["".join(r["text_output"][0] for r in answer) for answer in (replies, untraced)]
        assert texts[0] == texts[1]
    else:
        assert replies == untraced
    assert noted(timeline) == [a - b for a, b in zip(after, before, strict=True)]
    assert noted(timeline)[1] == sum(r["num_output_tokens"][0] for r in replies) == 9
    assert [name for name, _ in timeline.marks] == MARKS
    times = [at for _, at in timeline.marks]
    assert times == sorted(times)
    facts = timeline.facts
    since = {name: later[name] - earlier[name] for name in later}
    waited, first = times[1] - times[0], facts["penstock.llm.time_to_first_token_ms"]
    assert since["penstock_llm_queue_seconds"] == pytest.approx(waited / 1e9, abs=1e-6)
    assert isinstance(first, float)
    assert since["penstock_llm_time_to_first_token_seconds"] == pytest.approx(first / 1e3)
    assert since["penstock_llm_generated_tokens"] == 9
    assert facts["gen_ai.response.finish_reasons"] == ["length"]
    assert facts["gen_ai.response.model"] == "model"
    assert facts["gen_ai.usage.cache_read.input_tokens"] == 0
    assert facts["penstock.llm.preemptions"] == 0
    assert PROMPT not in repr(facts)


def observed(instance: RunningInstance, tenant: str = "") -> dict[str, int]:
    """Observations of each family of ours, of this tenant or of nobody."""
    histograms: Any = instance.backend.histograms()
    return {
        split_series_name(name)[0].removeprefix("penstock_llm_"): sum(histogram.state()[1])
        for name, histogram in histograms.items()
        if name.startswith("penstock_llm_") and dict(split_series_name(name)[1]) == _label(tenant)
    }


def _label(tenant: str) -> dict[str, str]:
    return {"tenant": tenant} if tenant else {}


async def test_times_are_those_of_the_tenant(instance: RunningInstance) -> None:
    """A stream and two candidates of one tenant, while somebody else's request runs."""
    red = Sender("red", label="red")
    before = observed(instance)
    wanted: Any = {"stream": False, "exclude_input_in_output": True}
    pair: Any = {"n": 2, "seed": 7, "temperature": 1.5, "max_tokens": 5}
    await asyncio.gather(
        exhaust(start(instance, max_tokens=9, sender=red)),
        exhaust(start(instance, inputs=wanted, sender=red, **pair)),
        exhaust(start(instance, max_tokens=7)),
    )
    await until(lambda: observed(instance, "red").get("request_seconds") == 3, 0.01)
    assert observed(instance, "red") == {
        "queue_seconds": 3,
        "time_to_first_token_seconds": 3,
        "inter_token_seconds": 8 + 4 + 4,
        "time_per_output_token_seconds": 3,
        "request_seconds": 3,
        "prompt_tokens": 3,
        "generated_tokens": 3,
    }
    later = observed(instance)
    assert later["time_to_first_token_seconds"] - before["time_to_first_token_seconds"] == 1
    assert later["inter_token_seconds"] - before["inter_token_seconds"] == 6


async def exhaust(responses: AsyncGenerator[Any, None]) -> None:
    async for _ in responses:
        pass


async def test_candidates_add_up(instance: RunningInstance) -> None:
    before, timeline = counted(instance), Trace(1).root
    sampling: dict[str, Any] = {"n": 3, "seed": 7, "temperature": 1.5, "max_tokens": 20}
    inputs = {"stream": False, "exclude_input_in_output": True}
    (reply,) = await ask(instance, timeline, inputs=inputs, **sampling)
    assert len(reply["text_output"]) == 3
    assert noted(timeline)[1] == counted(instance)[1] - before[1] == 60
    assert timeline.facts["gen_ai.request.choice.count"] == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_tells_the_tokens_so_far(instance: RunningInstance, stream: bool) -> None:
    before, timeline = counted(instance), Trace(1).root

    async def read() -> None:
        inputs = {"stream": stream}
        async with aclosing(
            start(instance, traced_by=timeline, inputs=inputs, max_tokens=900)
        ) as responses:
            async for _ in responses:
                pass

    task = asyncio.ensure_future(read())
    await until(lambda: counted(instance)[1] - before[1] > 5, 0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until(lambda: usage(instance) == (0, 0, 0.0), 0.01)
    made = noted(timeline)[1]
    assert 5 < made <= counted(instance)[1] - before[1]
    assert [name for name, _ in timeline.marks] == MARKS


async def test_vllms_spans_are_children_of_exported_requests(
    instance: RunningInstance, collected: list[bytes]
) -> None:
    timelines = [Trace(1, propagated=propagated).root for propagated in (False, True)]
    for timeline in (None, *timelines):
        await ask(instance, timeline, max_tokens=4)
    (span,) = await _exported(collected)
    exported = timelines[1]
    assert span.name == "llm_request"
    assert int.from_bytes(span.trace_id) == exported.trace.trace_id
    assert int.from_bytes(span.parent_span_id) == exported.span_id
    told = {each.key: each.value.int_value for each in span.attributes}
    assert [told["gen_ai.usage.prompt_tokens"], told["gen_ai.usage.completion_tokens"]] == noted(
        exported
    )


async def _exported(collected: list[bytes]) -> list[Any]:
    """The spans that vLLM has sent since they were last taken."""
    await asyncio.to_thread(trace.get_tracer_provider().force_flush)
    bodies, collected[:] = collected[:], []
    return [
        span
        for body in bodies
        for resource in messages.ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


async def test_exchange_that_is_cancelled_has_an_end(instance: RunningInstance) -> None:
    timeline = Trace(1).root
    body = {"model": "m", "prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "stream": True}
    async with application(instance.backend) as app:
        answer = begin(app, "/v1/completions", body, timeline=timeline)
        async for part in answer:
            if isinstance(part, ExchangePart) and part.body:
                break
        answer.close()
    await until(lambda: [name for name, _ in timeline.marks] == MARKS, 0.01)
    assert noted(timeline)[1] < 900


async def test_context_of_an_exchange_reaches_the_engine(
    instance: RunningInstance, collected: list[bytes]
) -> None:
    """The client's own, unless the server's span is between it and vLLM's."""
    client, unsampled = f"00-{7:032x}-{8:016x}-01", f"00-{7:032x}-{9:016x}-00"
    exported = Trace(1, propagated=True).root
    await _exported(collected)
    async with application(instance.backend) as app:
        for traceparent, timeline in (
            (client, None),
            (unsampled, None),
            (client, Trace(1).root),
            (client, exported),
        ):
            headers = (("content-type", "application/json"), ("traceparent", traceparent))
            body = b'{"model": "m", "prompt": "a", "max_tokens": 2}'
            exchange = HttpExchange("POST", "/v1/completions", headers=headers, body=body)
            request = InferenceRequest(
                "m", exchange=exchange, scope=RequestScope(timeline=timeline)
            )
            status, _ = await whole(app.answer(request))
            assert status == 200
    parents = [int.from_bytes(span.parent_span_id) for span in await _exported(collected)]
    assert parents == [8, 8, exported.span_id]
