"""A loaded version admits requests, and reports its readiness."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from math import inf

import pytest

from fakes import FakeInstance, make_model, make_request, marks, model_config, turns
from models.serving.loaded_model.schedulers import Full
from penstock.core.config import ModelInput
from penstock.core.errors import InvalidRequestError, RejectedError, UnavailableError
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType
from penstock.inflight.statistics import FailureReason, Statistics
from penstock.metrics.histogram import Histogram
from penstock.models.serving.answers import Gauge, TensorMetadata
from penstock.models.serving.loaded_model import LoadedModel, ModelParts
from penstock.scheduling import Scheduler
from penstock.scheduling.batching.batch_queue import BatchPolicy
from penstock.scheduling.batching.dynamic_batcher import BatcherSettings, DynamicBatcher
from penstock.scheduling.direct import DirectScheduler

# -- inference -------------------------------------------------------------------------------------


async def test_an_admitted_request_is_answered_by_the_version() -> None:
    stream = make_model(FakeInstance()).infer(make_request("a"))
    assert stream.model_version == "1"
    assert await marks(stream) == ["a"]


async def test_a_request_that_is_not_fit_is_refused_before_it_counts() -> None:
    instance = FakeInstance()
    model = make_model(instance)
    with pytest.raises(InvalidRequestError):
        model.infer(InferenceRequest("m"))
    assert model.statistics == Statistics()
    assert instance.batches == []


async def test_a_request_that_the_queue_refuses_is_raised_and_counted_as_rejected() -> None:
    model = LoadedModel(ModelParts(model_config(), 1, Full(), Statistics()), [FakeInstance()])
    with pytest.raises(RejectedError, match="Exceeds maximum queue size"):
        model.infer(make_request())
    assert model.statistics.failures == {FailureReason.REJECTED: 1}
    assert model.statistics.pending == model.statistics.in_flight == 0


async def test_no_more_requests_wait_than_the_server_lets() -> None:
    """Whatever the scheduler; executing requests do not count, and cancelled ones make room."""
    instance, statistics = FakeInstance(held=True), Statistics()
    config, scheduler = model_config(), DirectScheduler([instance])
    model = LoadedModel(ModelParts(config, 1, scheduler, statistics, max_pending=2), [instance])
    streams = [model.infer(make_request(id)) for id in "abc"]
    with pytest.raises(RejectedError, match=r"^\[request id: d\] Exceeds maximum queue size$"):
        model.infer(make_request("d"))
    assert statistics.failures == {FailureReason.REJECTED: 1}
    streams[1].close()
    streams.append(model.infer(make_request("e")))
    instance.release()
    await turns(20)
    assert instance.batches == [["a"], ["c"], ["e"]]


async def test_a_model_without_an_instance_that_works_says_why() -> None:
    instances = FakeInstance("m_0"), FakeInstance("m_1")
    for instance in instances:
        instance.go_away()
    with pytest.raises(UnavailableError, match=r"^model 'm', instance 'm_0': it is away$"):
        make_model(*instances).infer(make_request())


async def test_one_instance_that_works_is_enough() -> None:
    away, here = FakeInstance("m_0"), FakeInstance("m_1")
    away.go_away()
    assert await marks(make_model(away, here).infer(make_request("a"))) == ["a"]


@pytest.mark.parametrize("batched", [False, True])
async def test_queued_requests_fail_once_all_instances_are_lost(batched: bool) -> None:
    instances = first, second = FakeInstance("m_0", held=True), FakeInstance("m_1", held=True)
    scheduler: Scheduler = DirectScheduler(instances)
    if batched:
        scheduler = DynamicBatcher(BatcherSettings(BatchPolicy(8)), instances)
    model = LoadedModel(ModelParts(model_config(), 1, scheduler, Statistics()), instances)
    *_, waiting = [model.infer(make_request(id, rows=8)) for id in "abc"]
    await turns()
    first.give_up()
    assert not waiting.ended
    second.give_up()
    with pytest.raises(UnavailableError, match=r"^model 'm', instance 'm_0': it is away$"):
        await marks(waiting)
    assert (first.batches, second.batches, model.statistics.pending) == ([["a"]], [["b"]], 0)
    first.release()
    second.release()
    await asyncio.wait_for(model.stop(), 20)


# -- readiness and numbers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("healths", "ready"), [((True, True), True), ((True, False), False), ((False,), False)]
)
async def test_a_model_is_ready_when_all_its_instances_are(
    healths: Sequence[bool], ready: bool
) -> None:
    instances = [FakeInstance(f"m_{n}") for n in range(len(healths))]
    for instance, health in zip(instances, healths, strict=True):
        instance.health = health
    assert await make_model(*instances).ready() is ready


async def test_why_a_model_is_not_ready_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock")
    instance = FakeInstance("m_0")
    model = make_model(instance)
    assert await model.ready()
    instance.health = False
    for _ in range(3):
        assert not await model.ready()
    instance.go_away()
    assert not await model.ready()
    instance.come_back()
    instance.health = True
    assert await model.ready()
    told = "model 'm' version 1"
    assert caplog.messages == [
        f"{told} is not ready: instance 'm_0': it answers that it cannot serve, or does not answer",
        f"{told} is not ready: instance 'm_0': it is away",
        f"{told} is ready again",
    ]
    assert {record.model for record in caplog.records} == {"m"}  # type: ignore[attr-defined]


async def test_numbers_of_equal_names_are_summed_over_the_instances() -> None:
    first, second = FakeInstance("m_0"), FakeInstance("m_1")
    first.numbers, second.numbers = {"load": 1.5, "free": 3.0}, {"load": 2.0}
    gauges = sorted(make_model(first, second).gauges(), key=lambda gauge: gauge.name)
    assert gauges == [Gauge("free", "m", "1", 3.0), Gauge("load", "m", "1", 3.5)]


async def test_of_shares_the_mean_is_shown() -> None:
    """Two caches that are half full are half full together."""
    first, second = FakeInstance("m_0"), FakeInstance("m_1")
    first.numbers, second.numbers = {"cache_usage": 0.25}, {"cache_usage": 0.75}
    (gauge,) = make_model(first, second).gauges()
    assert gauge == Gauge("cache_usage", "m", "1", 0.5)


async def test_histograms_of_equal_names_are_added_up_over_the_instances() -> None:
    instances = FakeInstance("m_0"), FakeInstance("m_1")
    for each in instances:
        histogram = Histogram((1.0,))
        histogram.observe(0.5)
        each.states = {"seconds": histogram.state()}
    (found,) = make_model(*instances).histograms()
    assert (found.name, found.model, found.version) == ("seconds", "m", "1")
    assert found.histogram.buckets == ((1.0, 2), (inf, 2))


@pytest.mark.parametrize(("max_batch_size", "shape"), [(8, (-1, 4)), (0, (4,))])
async def test_clients_see_the_batch_dimension_where_the_model_batches(
    max_batch_size: int, shape: tuple[int, ...]
) -> None:
    tensor = ModelInput(name="IN", data_type=DataType.FP32, dims=(4,))
    config = model_config(input=(tensor,), max_batch_size=max_batch_size)
    model = make_model(FakeInstance(), config=config)
    assert model.metadata([1]).inputs == (TensorMetadata("IN", "FP32", shape),)


async def test_clients_see_a_tensor_without_a_datatype_as_invalid() -> None:
    config = model_config(input=(ModelInput(name="IN"),), max_batch_size=0)
    model = make_model(FakeInstance(), config=config)
    assert model.metadata([1]).inputs == (TensorMetadata("IN", "<invalid>", ()),)
