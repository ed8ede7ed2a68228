"""Deadlines of requests, and how far they were when they ended."""

from __future__ import annotations

import asyncio

import pytest

from fakes import (
    FakeInstance,
    in_virtual_time,
    make_inference,
    make_model,
    make_request,
    make_response,
    marks,
    model_config,
    turns,
)
from models.serving.loaded_model.schedulers import Refusing
from penstock.core.errors import DeadlineExceededError, InvalidRequestError
from penstock.inflight.statistics import FailureReason, Phase, Statistics
from penstock.models.serving.loaded_model import LoadedModel, ModelParts
from penstock.scheduling.batching.batch_queue import BatchPolicy
from penstock.scheduling.batching.dynamic_batcher import BatcherSettings, DynamicBatcher
from penstock.scheduling.direct import DirectScheduler


def _batched(instance: FakeInstance, statistics: Statistics) -> LoadedModel:
    scheduler = DynamicBatcher(BatcherSettings(BatchPolicy(8, max_queue_delay=1.0)), [instance])
    return LoadedModel(ModelParts(model_config(), 1, scheduler, statistics), [instance])


@pytest.mark.contract("GP-23")
@in_virtual_time
async def test_deadline_of_a_waiting_request_passes() -> None:
    """It is a cancellation, and no time-out of a queue."""
    instance = FakeInstance(held=True)
    model = make_model(instance)
    running = model.infer(make_request("a"))
    waiting = model.infer(make_request("b", deadline=0.5))
    with pytest.raises(DeadlineExceededError, match=r"^Deadline Exceeded$"):
        await anext(waiting)
    assert asyncio.get_running_loop().time() < 0.6
    instance.release()
    assert await marks(running) == ["a"]
    assert instance.batches == [["a"]]
    assert model.statistics.failures == {FailureReason.CANCELED: 1}
    assert model.statistics.pending == 0


@in_virtual_time
async def test_request_that_is_answered_in_time_ends_well() -> None:
    model = make_model(FakeInstance(seconds=0.1))
    assert await marks(model.infer(make_request("a", deadline=5.0))) == ["a"]
    await asyncio.sleep(10)
    assert model.statistics.success.count == 1
    assert model.statistics.fail.count == 0


@in_virtual_time
async def test_deadline_of_an_executing_request_passes() -> None:
    model = make_model(FakeInstance(held=True))
    with pytest.raises(DeadlineExceededError):
        await anext(model.infer(make_request("a", deadline=0.5)))
    assert model.statistics.cancelled == {Phase.EXECUTING: 1}


@in_virtual_time
async def test_deadline_of_a_refused_request_is_forgotten() -> None:
    instance = FakeInstance()
    model = LoadedModel(ModelParts(model_config(), 1, Refusing(), Statistics()), [instance])
    with pytest.raises(InvalidRequestError):
        model.infer(make_request("a", deadline=0.5))
    await asyncio.sleep(1)
    assert model.statistics == Statistics()


@pytest.mark.contract("ME-04", "D-15")
@in_virtual_time
async def test_phase_of_a_cancelled_request_is_counted() -> None:
    statistics = Statistics()
    busy = FakeInstance(held=True)
    model = LoadedModel(ModelParts(model_config(), 1, DirectScheduler([busy]), statistics), [busy])
    executing, queued = model.infer(make_request("a")), model.infer(make_request("b"))
    queued.close()
    executing.close()
    forming = _batched(FakeInstance(), statistics).infer(make_request("c"))
    await turns()
    forming.close()
    streaming = make_inference("d", statistics=statistics)
    streaming.started(1)
    streaming.stream.send(make_response(1))
    streaming.stream.close()
    assert statistics.cancelled == dict.fromkeys(Phase, 1)
    assert statistics.failures == {FailureReason.CANCELED: 4}


@in_virtual_time
async def test_batch_that_waits_for_an_instance_is_queued_and_not_forming() -> None:
    statistics, instance = Statistics(), FakeInstance(held=True)
    model = _batched(instance, statistics)
    streams = [model.infer(make_request("a", rows=8)), model.infer(make_request("b"))]
    await turns()
    streams[1].close()
    assert statistics.cancelled == {Phase.QUEUED: 1}
