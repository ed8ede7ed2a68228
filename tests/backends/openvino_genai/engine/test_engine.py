"""The engine's loop and queue, over a scripted pipeline."""

from __future__ import annotations

import asyncio

import pytest

from backends.openvino_genai.scripted import ScriptedPipeline, Words, sequences
from penstock.core.errors import InternalError, RejectedError, UnavailableError
from penstock_backends.language_model import GenerationTimes
from penstock_backends.openvino_genai.engine import GenAiEngine
from penstock_backends.openvino_genai.sequence import TokenSequence


def engine(pipeline: ScriptedPipeline, running: int = 8, waiting: int = 8) -> GenAiEngine:
    return GenAiEngine(pipeline, max_running=running, max_waiting=waiting)


async def text(request: list[TokenSequence]) -> str:
    stream = request[0].delivery.stream
    return "".join([r.outputs["text_output"].elements()[0].decode() async for r in stream])


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.contract("SD-06")
async def test_requests_run_together() -> None:
    pipeline = ScriptedPipeline()
    runner = engine(pipeline)
    requests = [sequences(max_tokens=3) for _ in range(4)]
    for request in requests:
        runner.submit(request)
    assert await asyncio.gather(*map(text, requests)) == ["0 1 2 "] * 4
    assert pipeline.steps == 3


@pytest.mark.contract("SD-06")
async def test_a_request_joins_while_another_runs() -> None:
    pipeline = ScriptedPipeline()
    runner = engine(pipeline)
    long, short = sequences(max_tokens=100), sequences(max_tokens=2)
    runner.submit(long)
    await anext(long[0].delivery.stream)
    runner.submit(short)
    await text(short)
    assert pipeline.steps < 10
    await text(long)


async def test_the_event_loop_gets_turns_between_steps() -> None:
    pipeline = ScriptedPipeline()
    runner = engine(pipeline)
    runner.submit(sequences(max_tokens=50))
    await turns(12)
    assert 0 < pipeline.steps <= 4


async def test_only_so_many_run_and_the_others_wait_their_turn() -> None:
    pipeline = ScriptedPipeline()
    runner = engine(pipeline, running=2)
    requests = [sequences(max_tokens=2) for _ in range(5)]
    for request in requests:
        runner.submit(request)
    await anext(requests[0][0].delivery.stream)
    assert runner.metrics()["penstock_llm_running_requests"] == 2
    assert runner.metrics()["penstock_llm_waiting_requests"] == 3
    await asyncio.gather(*map(text, requests))
    assert runner.metrics()["penstock_llm_waiting_requests"] == 0


async def test_a_full_queue_turns_requests_away() -> None:
    runner = engine(ScriptedPipeline(), running=1, waiting=2)
    for _ in range(3):
        runner.submit(sequences(max_tokens=1))
    with pytest.raises(RejectedError, match="queue is full"):
        runner.submit(sequences(max_tokens=1))


async def test_cancelling_one_leaves_the_others() -> None:
    pipeline = ScriptedPipeline()
    runner = engine(pipeline)
    gone, stays = sequences(max_tokens=50), sequences(max_tokens=5)
    runner.submit(gone)
    runner.submit(stays)
    await anext(stays[0].delivery.stream)
    runner.cancel(gone)
    assert await text(stays) == "1 2 3 4 "
    assert [handle.cancelled for handle in pipeline.handles] == [True, False]


async def test_cancelling_while_waiting_never_reaches_the_pipeline() -> None:
    pipeline = ScriptedPipeline()
    runner = engine(pipeline, running=1)
    first, gone = sequences(max_tokens=3), sequences(max_tokens=3)
    runner.submit(first)
    runner.submit(gone)
    runner.cancel(gone)
    assert await text(first) == "0 1 2 "
    assert len(pipeline.handles) == 1


async def test_candidates_share_their_responses() -> None:
    runner = engine(ScriptedPipeline())
    request = sequences(3, max_tokens=2)
    runner.submit(request)
    responses = [response async for response in request[0].delivery.stream]
    assert [r.outputs["text_output"].elements() for r in responses] == [
        [b"0 ", b"0 ", b"0 "],
        [b"1 ", b"1 ", b"1 "],
    ]


async def test_a_stop_string_frees_the_sequence_in_the_pipeline() -> None:
    pipeline = ScriptedPipeline()
    runner = engine(pipeline)
    request = sequences(max_tokens=50, stop="2")
    runner.submit(request)
    assert await text(request) == "0 1 "
    await turns(12)
    assert pipeline.handles[0].cancelled
    assert not pipeline.busy


async def test_a_failing_step_ends_every_request_and_the_engine() -> None:
    runner = engine(ScriptedPipeline(fail_at=2), running=1)
    requests = [sequences(max_tokens=5) for _ in range(2)]
    for request in requests:
        runner.submit(request)
    for request in requests:
        with pytest.raises(UnavailableError, match="the engine failed: out of luck"):
            await text(request)
    assert runner.failure == "the engine failed: out of luck"
    with pytest.raises(UnavailableError, match="out of luck"):
        runner.submit(sequences())


async def test_a_failed_engine_steps_no_more() -> None:
    pipeline = ScriptedPipeline(fail_at=1)
    runner = engine(pipeline)
    runner.submit(sequences(max_tokens=5))
    await turns(30)
    assert pipeline.steps == 1


async def test_a_request_that_the_pipeline_refuses_fails_alone() -> None:
    pipeline = ScriptedPipeline()
    runner = engine(pipeline)
    refused, fine = sequences(2, max_tokens=2), sequences(max_tokens=2)
    pipeline.refuse = RuntimeError("no such thing")
    runner.submit(refused)
    with pytest.raises(InternalError, match="no such thing"):
        await text(refused)
    pipeline.refuse = None
    runner.submit(fine)
    assert await text(fine) == "0 1 "


async def test_a_sequence_that_the_pipeline_gives_up_ends_its_request() -> None:
    pipeline = ScriptedPipeline()
    runner = engine(pipeline)
    request = sequences(2, max_tokens=50)
    runner.submit(request)
    await anext(request[0].delivery.stream)
    pipeline.handles[0].lost = True
    with pytest.raises(UnavailableError, match="ran out of KV cache"):
        await text(request)
    assert pipeline.handles[1].cancelled


class Unspeakable(Words):
    def step(self, token: int) -> str:
        raise ValueError(token)


async def test_tokens_that_cannot_be_decoded_fail_their_request_alone() -> None:
    runner = engine(ScriptedPipeline())
    broken, fine = sequences(max_tokens=5, words=Unspeakable()), sequences(max_tokens=5)
    runner.submit(broken)
    runner.submit(fine)
    with pytest.raises(InternalError):
        await text(broken)
    assert await text(fine) == "0 1 2 3 4 "


async def test_closing_fails_running_and_waiting_requests() -> None:
    pipeline = ScriptedPipeline()
    runner = engine(pipeline, running=1)
    requests = [sequences(max_tokens=50) for _ in range(2)]
    for request in requests:
        runner.submit(request)
    await anext(requests[0][0].delivery.stream)
    runner.close()
    assert not pipeline.busy
    for request in requests:
        with pytest.raises(UnavailableError, match="unloaded"):
            await text(request)


async def test_the_cache_is_empty_when_nothing_is_live() -> None:
    runner = engine(ScriptedPipeline())
    assert runner.metrics()["penstock_llm_kv_cache_usage"] == 0.0
    request = sequences(max_tokens=2)
    runner.submit(request)
    await anext(request[0].delivery.stream)
    assert runner.metrics()["penstock_llm_kv_cache_usage"] == 0.5
    await text(request)
    assert runner.metrics()["penstock_llm_kv_cache_usage"] == 0.0


async def test_times_of_requests_are_observed() -> None:
    """With two candidates, a request has one first token and one output for each step."""
    runner = engine(ScriptedPipeline())
    request = sequences(2, max_tokens=3)
    request[0].delivery.times = GenerationTimes(runner.statistics, 1)
    runner.submit(request)
    await text(request)
    counts = {
        name.removeprefix("penstock_llm_"): histogram.buckets[-1][1]
        for name, histogram in runner.statistics.histograms.items()
    }
    assert counts == {
        "queue_seconds": 1,
        "time_to_first_token_seconds": 1,
        "inter_token_seconds": 2,
        "request_seconds": 1,
        "prompt_tokens": 1,
        "generated_tokens": 1,
        "time_per_output_token_seconds": 1,
    }
    tokens = runner.statistics.histograms["penstock_llm_generated_tokens"]
    assert tokens.total == 6


async def test_tokens_are_counted() -> None:
    runner = engine(ScriptedPipeline())
    request = sequences(max_tokens=3)
    runner.submit(request)
    await text(request)
    metrics = runner.metrics()
    assert metrics["penstock_llm_prefill_tokens_total"] == 1
    assert metrics["penstock_llm_generation_tokens_total"] == 3
    assert metrics["penstock_llm_requests_total"] == 1
