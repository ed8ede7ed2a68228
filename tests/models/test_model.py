"""A loaded version: it admits, schedules, counts, and stops without losing anybody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import (
    FakeInstance,
    Script,
    Tokens,
    in_virtual_time,
    make_inference,
    make_model,
    make_request,
    make_response,
    marks,
    model_config,
    turns,
)
from penstock.core.backend import InstanceContext
from penstock.core.config import DynamicBatching, ModelInput
from penstock.core.errors import (
    DeadlineExceededError,
    InferenceError,
    InvalidRequestError,
    RejectedError,
    UnavailableError,
)
from penstock.core.inference import Inference
from penstock.core.request import InferenceRequest
from penstock.core.statistics import Duration, FailureReason, Phase, Statistics
from penstock.core.stream import ResponseStream
from penstock.core.tensor import DataType
from penstock.models.instance import ThreadInstance
from penstock.models.model import Model
from penstock.models.views import Gauge, TensorMetadata
from penstock.scheduling import Scheduler
from penstock.scheduling.batcher import DynamicBatcher
from penstock.scheduling.batcher_settings import BatcherSettings
from penstock.scheduling.direct import DirectScheduler
from penstock.scheduling.queue import BatchPolicy

# -- inference -----------------------------------------------------------------------------------


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


class _Full:
    """A scheduler that has no room."""

    def schedule(self, inference: Inference) -> None:
        raise RejectedError("Exceeds maximum queue size")

    def abandon(self, error: InferenceError) -> None: ...

    async def drain(self) -> None: ...


async def test_a_request_that_the_queue_refuses_is_raised_and_counted_as_rejected() -> None:
    model = Model(model_config(), 1, [FakeInstance()], _Full(), Statistics())
    with pytest.raises(RejectedError, match="Exceeds maximum queue size"):
        model.infer(make_request())
    assert model.statistics.failures == {FailureReason.REJECTED: 1}
    assert model.statistics.pending == model.statistics.in_flight == 0


async def test_no_more_requests_wait_than_the_server_lets() -> None:
    """Whatever the scheduler; who is executed does not wait, and who leaves makes room."""
    instance, statistics = FakeInstance(held=True), Statistics()
    config, scheduler = model_config(), DirectScheduler([instance])
    model = Model(config, 1, [instance], scheduler, statistics, max_pending=2)
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
async def test_nobody_waits_for_instances_that_are_all_down_for_good(batched: bool) -> None:
    instances = first, second = FakeInstance("m_0", held=True), FakeInstance("m_1", held=True)
    scheduler: Scheduler = DirectScheduler(instances)
    if batched:
        scheduler = DynamicBatcher(BatcherSettings(BatchPolicy(8)), instances)
    model = Model(model_config(), 1, instances, scheduler, Statistics())
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
    await asyncio.wait_for(model.stop(), 1)


# -- readiness and numbers -----------------------------------------------------------------------


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


async def test_numbers_of_equal_names_are_summed_over_the_instances() -> None:
    first, second = FakeInstance("m_0"), FakeInstance("m_1")
    first.numbers, second.numbers = {"load": 1.5, "free": 3.0}, {"load": 2.0}
    gauges = sorted(make_model(first, second).gauges(), key=lambda gauge: gauge.name)
    assert gauges == [Gauge("free", "m", "1", 3.0), Gauge("load", "m", "1", 3.5)]


@pytest.mark.parametrize(("max_batch_size", "shape"), [(8, (-1, 4)), (0, (4,))])
async def test_clients_see_the_batch_dimension_where_the_model_batches(
    max_batch_size: int, shape: tuple[int, ...]
) -> None:
    tensor = ModelInput(name="IN", data_type=DataType.FP32, dims=(4,))
    config = model_config(input=(tensor,), max_batch_size=max_batch_size)
    model = make_model(FakeInstance(), config=config)
    assert model.tensors(config.input) == (TensorMetadata("IN", "FP32", shape),)


async def test_clients_see_a_tensor_without_a_datatype_as_invalid() -> None:
    config = model_config(input=(ModelInput(name="IN"),), max_batch_size=0)
    model = make_model(FakeInstance(), config=config)
    assert model.tensors(config.input) == (TensorMetadata("IN", "<invalid>", ()),)


# -- stopping ------------------------------------------------------------------------------------


async def test_stopping_finishes_what_is_in_flight_and_then_releases_the_instances() -> None:
    instance = FakeInstance(held=True)
    model = make_model(instance)
    streams = [model.infer(make_request(id)) for id in "abc"]
    stopping = asyncio.ensure_future(model.stop())
    await turns()
    assert (stopping.done(), instance.stopped) == (False, 0)
    instance.release()
    assert [await marks(stream) for stream in streams] == [["a"], ["b"], ["c"]]
    await asyncio.wait_for(stopping, 1)
    assert instance.stopped == 1


async def test_a_model_that_stops_refuses_at_once_and_is_not_ready() -> None:
    instance = FakeInstance(held=True)
    model = make_model(instance)
    model.infer(make_request("a"))
    stopping = asyncio.ensure_future(model.stop())
    await turns()
    with pytest.raises(UnavailableError, match=r"has stopped accepting new inference requests$"):
        model.infer(make_request("b"))
    assert not await model.ready()
    instance.release()
    await stopping


async def test_stopping_waits_for_requests_whose_instance_is_away() -> None:
    instance = FakeInstance(held=True)
    model = make_model(instance)
    _, waiting = model.infer(make_request("a")), model.infer(make_request("b"))
    await turns()
    instance.go_away()
    instance.release()
    stopping = asyncio.ensure_future(model.stop())
    await turns(20)
    assert (stopping.done(), instance.stopped) == (False, 0)
    instance.come_back()
    assert await marks(waiting) == ["b"]
    await asyncio.wait_for(stopping, 1)


async def test_stopping_waits_for_an_execution_whose_reader_left() -> None:
    instance = FakeInstance(held=True)
    model = make_model(instance)
    stream = model.infer(make_request())
    await turns()
    stream.close()
    stopping = asyncio.ensure_future(model.stop())
    await turns()
    assert (stopping.done(), instance.stopped) == (False, 0)
    instance.release()
    await asyncio.wait_for(stopping, 1)


async def test_aborting_fails_what_waits_for_an_instance() -> None:
    instance = FakeInstance(held=True)
    model = make_model(instance)
    _, waiting = model.infer(make_request("a")), model.infer(make_request("b"))
    await model.abort()
    with pytest.raises(UnavailableError, match=r"^model 'm' is being unloaded$"):
        await marks(waiting)
    instance.release()
    await turns()


async def test_an_idle_model_stops_at_once() -> None:
    instance = FakeInstance()
    await asyncio.wait_for(make_model(instance).stop(), 1)
    assert instance.stopped == 1


@pytest.mark.parametrize("end", [Model.stop, Model.abort])
async def test_an_instance_that_fails_to_stop_does_not_keep_the_others(end: Any) -> None:
    broken, sound = FakeInstance("m_0"), FakeInstance("m_1")
    broken.stop_error = OSError("device lost")
    with pytest.raises(OSError, match="device lost"):
        await end(make_model(broken, sound))
    assert sound.stopped == 1


async def test_aborting_does_not_wait_for_what_is_in_flight() -> None:
    instance = FakeInstance(held=True)
    model = make_model(instance)
    model.infer(make_request())
    await turns()
    await asyncio.wait_for(model.abort(), 1)
    assert instance.stopped == 1
    instance.release()
    await turns()


# -- everything at once --------------------------------------------------------------------------

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


@settings(max_examples=60)
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
    model = Model(model_config(), 1, [instance], _scheduler(instance, batched), statistics)

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
    model = Model(
        model_config(dynamic_batching=DynamicBatching()),
        1,
        [instance],
        DynamicBatcher(BatcherSettings(BatchPolicy(8)), [instance]),
        statistics,
    )
    streams = [model.infer(make_request(id, rows)) for id, rows in (("a", 1), ("b", 3))]
    assert [await marks(stream) for stream in streams] == [["a"], ["b"]]
    assert (statistics.success.count, statistics.inference_count) == (2, 4)
    assert statistics.queue.count == 2
    assert statistics.fail == Duration()


# -- deadlines, and where requests are cancelled ---------------------------------------------------


def _batched(instance: FakeInstance, statistics: Statistics) -> Model:
    scheduler = DynamicBatcher(BatcherSettings(BatchPolicy(8, max_queue_delay=1.0)), [instance])
    return Model(model_config(), 1, [instance], scheduler, statistics)


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


class _Refusing(_Full):
    """A scheduler to which no request is fit."""

    def schedule(self, inference: Inference) -> None:
        raise InvalidRequestError("must specify the START flag")


@in_virtual_time
async def test_deadline_of_a_refused_request_is_forgotten() -> None:
    instance = FakeInstance()
    model = Model(model_config(), 1, [instance], _Refusing(), Statistics())
    with pytest.raises(InvalidRequestError):
        model.infer(make_request("a", deadline=0.5))
    await asyncio.sleep(1)
    assert model.statistics == Statistics()


@pytest.mark.contract("ME-04", "D-15")
@in_virtual_time
async def test_phase_of_a_cancelled_request_is_counted() -> None:
    statistics = Statistics()
    busy = FakeInstance(held=True)
    model = Model(model_config(), 1, [busy], DirectScheduler([busy]), statistics)
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
