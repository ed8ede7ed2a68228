"""Whatever becomes of requests, a loaded version counts it right."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import (
    FakeInstance,
    Script,
    Tokens,
    in_virtual_time,
    make_request,
    make_response,
    marks,
    model_config,
)
from harness.examples import examples
from penstock.core.backend import InstanceContext
from penstock.core.config import DynamicBatching
from penstock.core.errors import InferenceError, UnavailableError
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.inflight.statistics import Duration, Statistics
from penstock.models.serving.loaded_model import LoadedModel, ModelParts
from penstock.models.serving.thread_instance import ThreadInstance
from penstock.scheduling import Scheduler
from penstock.scheduling.batching.batch_queue import BatchPolicy
from penstock.scheduling.batching.dynamic_batcher import BatcherSettings, DynamicBatcher
from penstock.scheduling.direct import DirectScheduler

KINDS = ("response", "error", "nonsense", "tokens", "broken tokens", "endless", "raise", "short")


def _outcomes(requests: Sequence[InferenceRequest]) -> Any:
    kinds = [str(request.parameters["kind"]) for request in requests]
    if "raise" in kinds:
        raise ValueError("the whole batch")
    outcomes = [_outcome(kind) for kind in kinds]
    return outcomes[:-1] if "short" in kinds else outcomes


def _outcome(kind: str) -> Any:
    return {
        "response": make_response(),
        "error": UnavailableError("busy"),
        "tokens": Tokens(20).generate(),
        "broken tokens": Tokens(3, error=OSError("engine died")).generate(),
        "endless": Tokens(1, end=asyncio.Event()).generate(),
    }.get(kind, "nonsense")


async def _read(stream: ResponseStream, patience: float) -> bool:
    """Whether the stream ended well before the client, who waits only so long, closed it."""
    with suppress(InferenceError, TimeoutError):
        async with asyncio.timeout(patience):
            await marks(stream)
    good = stream.ended and stream.error is None
    stream.close()
    return good


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.floats(0, 3), st.floats(0.1, 3)), max_size=15),
    st.booleans(),
)
@in_virtual_time
async def test_whatever_becomes_of_requests_the_counters_are_exact_and_all_is_quiet_after(
    calls: list[tuple[str, float, float]], batched: bool
) -> None:
    statistics = Statistics()
    context = InstanceContext("m_0", model_config(), 1, Path("/m/1"), run=_nowhere)
    instance = ThreadInstance(Script(outcomes=_outcomes).backend, context)
    await instance.start()
    model = LoadedModel(
        ModelParts(model_config(), 1, _scheduler(instance, batched), statistics), [instance]
    )

    async def call(kind: str, arrival: float, patience: float) -> bool:
        await asyncio.sleep(arrival)
        return await _read(model.infer(make_request(parameters={"kind": kind})), patience)

    answered = await asyncio.gather(*(call(*arguments) for arguments in calls))
    assert statistics.pending == statistics.in_flight == 0
    assert statistics.success.count == statistics.inference_count == sum(answered)
    assert statistics.fail.count == statistics.failures.total() == len(calls) - sum(answered)
    executions = sum(batch.compute_infer.count for batch in statistics.batches.values())
    assert statistics.execution_count == executions
    await asyncio.wait_for(model.stop(), 1)


def _scheduler(instance: ThreadInstance, batched: bool) -> Scheduler:
    if batched:
        return DynamicBatcher(BatcherSettings(BatchPolicy(8, max_queue_delay=0.5)), [instance])
    return DirectScheduler([instance])


async def _nowhere(*_: Any) -> Any:
    raise AssertionError("the instance has a thread of its own")


async def test_a_batch_is_one_execution_and_as_many_successes() -> None:
    """As the recorded statistics of a real server count them."""
    statistics, instance = Statistics(), FakeInstance()
    config = model_config(dynamic_batching=DynamicBatching())
    batcher = DynamicBatcher(BatcherSettings(BatchPolicy(8)), [instance])
    model = LoadedModel(ModelParts(config, 1, batcher, statistics), [instance])
    streams = [model.infer(make_request(id, rows)) for id, rows in (("a", 1), ("b", 3))]
    assert [await marks(stream) for stream in streams] == [["a"], ["b"]]
    assert (statistics.success.count, statistics.inference_count) == (2, 4)
    assert statistics.queue.count == 2
    assert statistics.fail == Duration()
