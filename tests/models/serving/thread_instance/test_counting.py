"""What is counted of an execution."""

from __future__ import annotations

import asyncio

import pytest

from fakes import Script, Tokens, execute, make_inference, marks
from models.serving.thread_instance.executions import executed, failure, started
from penstock.inflight.statistics import Duration, FailureReason, Statistics


async def test_an_execution_is_counted_by_its_rows() -> None:
    statistics = Statistics()
    async with started(Script()) as instance:
        batch = [
            make_inference(id, rows, statistics=statistics) for id, rows in (("a", 3), ("b", 2))
        ]
        await execute(instance, batch)
    assert (statistics.execution_count, list(statistics.batches)) == (1, [5])
    assert statistics.batches[5].compute_infer.ns > 0


async def test_an_execution_that_failed_is_counted_as_an_execution_only() -> None:
    statistics = Statistics()
    await executed(Script(outcomes=lambda _: None), "ab", statistics)
    assert (statistics.execution_count, statistics.inference_count) == (1, 0)
    assert statistics.success == Duration()
    assert statistics.failures == {FailureReason.BACKEND: 2}


@pytest.mark.parametrize("count", [2, 0])
async def test_a_stream_is_one_success_when_it_has_ended(count: int) -> None:
    statistics, end = Statistics(), asyncio.Event()
    tokens = Tokens(count, end=end)
    async with started(Script(lambda _: tokens.generate())) as instance:
        inference = make_inference(statistics=statistics)
        await execute(instance, [inference])
        assert statistics.success.count == 0
        end.set()
        await marks(inference.stream)
    assert (statistics.success.count, statistics.fail.count) == (1, 0)


@pytest.mark.contract("DC-05")
async def test_times_of_a_decoupled_request_are_those_of_its_execution() -> None:
    statistics, end = Statistics(decoupled=True), asyncio.Event()
    tokens = Tokens(2, end=end)
    async with started(Script(lambda _: tokens.generate())) as instance:
        inference = make_inference(statistics=statistics)
        await execute(instance, [inference])
        end.set()
        await marks(inference.stream)
    counted = statistics.batches[1]
    assert (statistics.compute_input, statistics.compute_infer, statistics.compute_output) == (
        counted.compute_input,
        counted.compute_infer,
        counted.compute_output,
    )


async def test_a_stream_that_breaks_is_one_failure_of_the_backend() -> None:
    statistics, tokens = Statistics(), Tokens(2, error=OSError("gone"))
    async with started(Script(lambda _: tokens.generate())) as instance:
        inference = make_inference(statistics=statistics)
        await execute(instance, [inference])
        await failure(inference)
    assert statistics.failures == {FailureReason.BACKEND: 1}
    assert statistics.success.count == 0
