"""The waiting around the queue. Times are virtual: a loop that need not wait does not."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import FakeInstance, in_virtual_time, make_inference, make_request, marks, turns
from penstock.core.errors import RejectedError, RequestCancelledError, UnavailableError
from penstock.core.inference import Inference
from penstock.core.request import InferenceRequest
from penstock.core.statistics import FailureReason, Statistics
from penstock.core.tensor import Tensor
from penstock.scheduling.batcher import DynamicBatcher
from penstock.scheduling.batcher_settings import BatcherSettings, signature
from penstock.scheduling.priority import LevelPolicy, PriorityLevels
from penstock.scheduling.queue import BatchPolicy

EAGER = BatcherSettings(BatchPolicy(4))
PATIENT = BatcherSettings(BatchPolicy(4, max_queue_delay=1.0))


def _scheduled(
    batcher: DynamicBatcher, ids: str, statistics: Statistics | None = None
) -> list[Inference]:
    inferences = [make_inference(id, statistics=statistics) for id in ids]
    for inference in inferences:
        batcher.schedule(inference)
    return inferences


# -- batching ------------------------------------------------------------------------------------


@pytest.mark.contract("D-02")
async def test_requests_of_one_turn_are_batched_without_a_delay() -> None:
    instance = FakeInstance()
    inferences = _scheduled(DynamicBatcher(EAGER, [instance]), "abc")
    assert [await marks(i.stream) for i in inferences] == [["a"], ["b"], ["c"]]
    assert instance.batches == [["a", "b", "c"]]


@pytest.mark.contract("D-02")
async def test_requests_that_come_while_the_instance_is_busy_are_batched() -> None:
    instance = FakeInstance(held=True)
    batcher = DynamicBatcher(EAGER, [instance])
    for id in "abcd":
        _scheduled(batcher, id)
        await turns()
    instance.release()
    await turns(10)
    assert instance.batches == [["a"], ["b", "c", "d"]]


@pytest.mark.contract("D-17")
async def test_an_idle_instance_takes_the_next_batch_while_others_are_busy() -> None:
    instances = FakeInstance("x", held=True), FakeInstance("y", held=True)
    _scheduled(DynamicBatcher(EAGER, instances), "abcdef")
    await turns()
    assert [instance.batches for instance in instances] == [[["a", "b", "c", "d"]], [["e", "f"]]]


async def test_an_instance_that_is_not_serial_is_given_batches_as_they_form() -> None:
    instance = FakeInstance(serial=False, held=True)
    batcher = DynamicBatcher(EAGER, [instance])
    for ids in ("ab", "c"):
        _scheduled(batcher, ids)
        await turns()
    assert (instance.batches, instance.running) == ([["a", "b"], ["c"]], 2)


async def test_requests_wait_for_an_instance_that_is_away() -> None:
    instance = FakeInstance()
    instance.go_away()
    _scheduled(DynamicBatcher(EAGER, [instance]), "ab")
    await turns()
    assert instance.batches == []
    instance.come_back()
    await turns()
    assert instance.batches == [["a", "b"]]


# -- waiting -------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_batch_that_may_grow_waits_for_the_delay() -> None:
    instance = FakeInstance()
    (inference,) = _scheduled(DynamicBatcher(PATIENT, [instance]), "a")
    await marks(inference.stream)
    assert instance.began == [pytest.approx(1.0)]


@in_virtual_time
async def test_a_later_request_does_not_postpone_a_batch() -> None:
    instance = FakeInstance()
    batcher = DynamicBatcher(PATIENT, [instance])
    _scheduled(batcher, "a")
    await asyncio.sleep(0.6)
    (last,) = _scheduled(batcher, "b")
    await marks(last.stream)
    assert instance.batches == [["a", "b"]]
    assert instance.began == [pytest.approx(1.0)]


@in_virtual_time
async def test_a_request_that_fills_the_batch_ends_the_waiting() -> None:
    instance = FakeInstance()
    batcher = DynamicBatcher(PATIENT, [instance])
    _scheduled(batcher, "abc")
    await asyncio.sleep(0.4)
    _scheduled(batcher, "d")
    await asyncio.sleep(5)
    assert instance.batches == [["a", "b", "c", "d"]]
    assert instance.began == [pytest.approx(0.4)]


@in_virtual_time
async def test_whoever_waited_long_enough_meanwhile_leaves_when_an_instance_is_idle() -> None:
    instance = FakeInstance(seconds=3.0)
    batcher = DynamicBatcher(PATIENT, [instance])
    _scheduled(batcher, "abcd")
    await asyncio.sleep(0.5)
    _scheduled(batcher, "ef")
    await asyncio.sleep(9)
    assert instance.batches[1] == ["e", "f"]
    assert instance.began[1] == pytest.approx(3.0)


@in_virtual_time
async def test_the_next_batch_waits_from_its_own_first_request() -> None:
    instance = FakeInstance()
    batcher = DynamicBatcher(PATIENT, [instance])
    _scheduled(batcher, "a")
    await asyncio.sleep(2)
    _scheduled(batcher, "b")
    await asyncio.sleep(2)
    assert instance.began == [pytest.approx(1.0), pytest.approx(3.0)]


def test_a_delay_too_short_for_a_timer_is_not_spent_spinning() -> None:
    """uvloop runs a timer of less than half a millisecond in the next turn, again and again."""

    instance = FakeInstance()

    async def call() -> None:
        batcher = DynamicBatcher(
            BatcherSettings(BatchPolicy(4, max_queue_delay=0.0002)), [instance]
        )
        for id in "abcde":
            await asyncio.sleep(0.001)
            (inference,) = _scheduled(batcher, id)
            await marks(inference.stream)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(call())
    assert instance.asked < 50


# -- leaving -------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_request_cancelled_in_a_forming_batch_leaves_its_neighbours_answered() -> None:
    instance, statistics = FakeInstance(), Statistics()
    inferences = _scheduled(DynamicBatcher(PATIENT, [instance]), "abc", statistics)
    await asyncio.sleep(0.5)
    inferences[1].stream.close()
    assert await marks(inferences[0].stream) == ["a"]
    assert await marks(inferences[2].stream) == ["c"]
    assert instance.batches == [["a", "c"]]
    assert statistics.pending == statistics.in_flight == 0


@in_virtual_time
async def test_a_batch_that_everybody_left_is_never_executed() -> None:
    instance = FakeInstance()
    inferences = _scheduled(DynamicBatcher(PATIENT, [instance]), "ab")
    await asyncio.sleep(0.5)
    for inference in inferences:
        inference.stream.close()
    await asyncio.sleep(5)
    assert instance.batches == []


@pytest.mark.contract("D-15")
async def test_a_request_cancelled_while_all_are_busy_never_reaches_an_instance() -> None:
    instance = FakeInstance(held=True)
    batcher = DynamicBatcher(EAGER, [instance])
    _scheduled(batcher, "a")
    await turns()
    leaving, staying = _scheduled(batcher, "bc")
    await turns()
    leaving.stream.close()
    instance.release()
    assert await marks(staying.stream) == ["c"]
    assert instance.batches == [["a"], ["c"]]


async def test_a_request_cancelled_while_its_batch_executes_leaves_the_others_answered() -> None:
    instance, statistics = FakeInstance(held=True), Statistics()
    leaving, staying = _scheduled(DynamicBatcher(EAGER, [instance]), "ab", statistics)
    await turns()
    leaving.stream.close()
    assert (statistics.pending, statistics.in_flight) == (0, 1)
    instance.release()
    assert await marks(staying.stream) == ["b"]
    with pytest.raises(RequestCancelledError):
        await marks(leaving.stream)


async def test_abandoned_requests_fail_and_later_ones_are_batched() -> None:
    instance = FakeInstance()
    batcher = DynamicBatcher(EAGER, [instance])
    first, second = _scheduled(batcher, "ab")
    batcher.abandon(UnavailableError("all is lost"))
    for inference in (first, second):
        with pytest.raises(UnavailableError, match="all is lost"):
            await marks(inference.stream)
    (third,) = _scheduled(batcher, "c")
    assert await marks(third.stream) == ["c"]
    assert instance.batches == [["c"]]


async def test_draining_waits_for_what_executes() -> None:
    instance = FakeInstance(held=True)
    batcher = DynamicBatcher(EAGER, [instance])
    _scheduled(batcher, "ab")
    await turns()
    draining = asyncio.ensure_future(batcher.drain())
    await turns()
    assert not draining.done()
    instance.release()
    await asyncio.wait_for(draining, 1)


# -- queue policies ------------------------------------------------------------------------------


def _limited(**limits: Any) -> BatcherSettings:
    return BatcherSettings(BatchPolicy(1), PriorityLevels(default_policy=LevelPolicy(**limits)))


@pytest.mark.contract("D-11")
async def test_a_full_queue_turns_requests_away_until_somebody_leaves() -> None:
    instance, statistics = FakeInstance(held=True), Statistics()
    batcher = DynamicBatcher(_limited(max_queue_size=2), [instance])
    _scheduled(batcher, "a", statistics)
    await turns()
    waiting = _scheduled(batcher, "bc", statistics)
    with pytest.raises(RejectedError, match=r"^\[request id: d\] Exceeds maximum queue size$"):
        _scheduled(batcher, "d", statistics)
    with pytest.raises(RejectedError, match=r"^\[request id: <id_unknown>\] Exceeds maximum"):
        batcher.schedule(make_inference())
    waiting[0].stream.close()
    _scheduled(batcher, "e", statistics)
    instance.release()
    await turns(20)
    assert instance.batches == [["a"], ["c"], ["e"]]


@pytest.mark.contract("D-12", "D-16")
@in_virtual_time
async def test_a_request_whose_time_is_up_is_rejected_though_all_instances_are_busy() -> None:
    instance, statistics = FakeInstance(seconds=9.0), Statistics()
    batcher = DynamicBatcher(_limited(timeout=2.0), [instance])
    first, second = _scheduled(batcher, "ab", statistics)
    with pytest.raises(RejectedError, match=r"^Request timeout expired$"):
        await marks(second.stream)
    assert asyncio.get_running_loop().time() == pytest.approx(2.0)
    assert await marks(first.stream) == ["a"]
    assert statistics.failures[FailureReason.REJECTED] == 1
    assert statistics.pending == statistics.in_flight == 0


@pytest.mark.contract("D-12", "D-16")
@in_virtual_time
async def test_a_request_in_a_forming_batch_expires_before_the_delay_is_up() -> None:
    instance = FakeInstance()
    policy = BatchPolicy(4, max_queue_delay=5.0)
    levels = PriorityLevels(default_policy=LevelPolicy(timeout=9.0, overridable=True))
    batcher = DynamicBatcher(BatcherSettings(policy, levels), [instance])
    (stays,) = _scheduled(batcher, "a")
    hurried = make_inference("b", timeout=1_000_000)
    batcher.schedule(hurried)
    with pytest.raises(RejectedError):
        await marks(hurried.stream)
    assert asyncio.get_running_loop().time() == pytest.approx(1.0)
    assert await marks(stays.stream) == ["a"]
    assert instance.began == [pytest.approx(5.0)]


@pytest.mark.contract("D-13")
@in_virtual_time
async def test_a_delayed_request_is_served_after_those_that_came_later() -> None:
    instance = FakeInstance(seconds=3.0)
    batcher = DynamicBatcher(_limited(timeout=2.0, delays=True), [instance])
    _scheduled(batcher, "ab")
    await asyncio.sleep(2.5)
    _scheduled(batcher, "c")
    await asyncio.sleep(20)
    assert instance.batches == [["a"], ["c"], ["b"]]


@pytest.mark.contract("D-09")
async def test_more_urgent_requests_are_executed_first() -> None:
    instance = FakeInstance()
    batcher = DynamicBatcher(BatcherSettings(BatchPolicy(1), PriorityLevels(3, 2)), [instance])
    for id, priority in (("a", 3), ("b", 0), ("c", 1), ("d", 9)):
        batcher.schedule(make_inference(id, priority=priority))
    await turns(20)
    assert instance.batches == [["c"], ["b"], ["d"], ["a"]]


@in_virtual_time
async def test_the_lowest_priority_waits_no_longer_than_its_policy() -> None:
    """Others may keep the instance busy for ever."""
    instance = FakeInstance(seconds=1.0)
    levels = PriorityLevels(2, 2, policies={2: LevelPolicy(timeout=3.5)})
    batcher = DynamicBatcher(BatcherSettings(BatchPolicy(1), levels), [instance])
    for id in "abcdefgh":
        batcher.schedule(make_inference(id, priority=1))
    low = make_inference("low", priority=2)
    batcher.schedule(low)
    with pytest.raises(RejectedError, match="Request timeout expired"):
        await marks(low.stream)
    assert asyncio.get_running_loop().time() == pytest.approx(3.5)
    await batcher.drain()


@pytest.mark.contract("D-20")
async def test_the_first_batch_waits_for_as_many_as_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "3")
    instance = FakeInstance()
    batcher = DynamicBatcher(EAGER, [instance])
    _scheduled(batcher, "ab")
    await turns()
    assert instance.batches == []
    for ids in ("c", "d"):
        _scheduled(batcher, ids)
        await turns()
    assert instance.batches == [["a", "b", "c"], ["d"]]


@pytest.mark.contract("D-21")
async def test_batches_are_logged_for_who_debugs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "penstock.scheduling.batcher")
    batcher = DynamicBatcher(EAGER, [FakeInstance(held=True)])
    for id, rows in (("a", 3), ("b", 1), ("c", 1)):
        batcher.schedule(make_inference(id, rows))
    await turns()
    assert caplog.messages == ["model 'm': batch of 2 requests, 4 rows; 1 wait"]


# -- order and lengths ---------------------------------------------------------------------------


@pytest.mark.contract("D-08")
@in_virtual_time
async def test_responses_keep_their_order_though_another_instance_is_faster() -> None:
    instances = FakeInstance("slow", seconds=5.0), FakeInstance("fast", seconds=1.0)
    settings = BatcherSettings(BatchPolicy(1), preserve_ordering=True)
    batcher, seen = DynamicBatcher(settings, instances), []
    inferences = _scheduled(batcher, "abc")

    async def read(inference: Inference) -> None:
        seen.extend(await marks(inference.stream))

    await asyncio.gather(*map(read, reversed(inferences)))
    assert seen == ["a", "b", "c"]
    assert instances[1].batches == [["b"], ["c"]]


async def test_a_budget_of_elements_counts_the_shapes_of_requests() -> None:
    instance = FakeInstance()
    settings = BatcherSettings(
        BatchPolicy(8, max_elements=6),
        signature=lambda request: None,
    )
    batcher = DynamicBatcher(settings, [instance])
    for id, width in (("a", 1), ("b", 3), ("c", 1)):
        batcher.schedule(make_inference(id, width=width))
    await turns(10)
    assert instance.batches == [["a", "b"], ["c"]]


async def test_requests_of_one_bucket_are_batched_past_others() -> None:
    instance = FakeInstance()
    settings = BatcherSettings(BatchPolicy(8, buckets=(2,)), signature=lambda request: None)
    batcher = DynamicBatcher(settings, [instance])
    for id, width in (("a", 1), ("b", 9), ("c", 2), ("d", 3)):
        batcher.schedule(make_inference(id, width=width))
    await turns(10)
    assert instance.batches == [["a", "c"], ["b", "d"]]


# -- signatures ----------------------------------------------------------------------------------


def _shaped(*shapes: tuple[int, ...]) -> InferenceRequest:
    inputs = {f"IN{n}": Tensor.from_numpy(np.zeros(shape)) for n, shape in enumerate(shapes)}
    return InferenceRequest("m", inputs=inputs)


def test_requests_of_any_number_of_rows_can_be_batched() -> None:
    assert signature(_shaped((1, 3), (1,))) == signature(_shaped((5, 3), (5,)))


@pytest.mark.parametrize("shapes", [[(1, 4)], [(1, 3, 1)], [(1, 3), (1,)], []])
def test_requests_of_other_shapes_or_inputs_cannot(shapes: list[tuple[int, ...]]) -> None:
    assert signature(_shaped((1, 3))) != signature(_shaped(*shapes))


def test_the_order_of_inputs_does_not_matter() -> None:
    request = _shaped((1, 3), (1, 4))
    turned = InferenceRequest("m", inputs=dict(reversed(list(request.inputs.items()))))
    assert signature(request) == signature(turned)


async def test_requests_of_another_width_are_not_batched() -> None:
    instance = FakeInstance()
    batcher = DynamicBatcher(EAGER, [instance])
    for id, width in (("a", 1), ("b", 1), ("c", 2)):
        batcher.schedule(make_inference(id, width=width))
    await turns(10)
    assert instance.batches == [["a", "b"], ["c"]]


async def test_requests_count_with_their_rows() -> None:
    instance = FakeInstance()
    batcher = DynamicBatcher(EAGER, [instance])
    for id, rows in (("a", 3), ("b", 1), ("c", 2)):
        batcher.schedule(make_inference(id, rows))
    await turns(10)
    assert instance.batches == [["a", "b"], ["c"]]


# -- all of it -----------------------------------------------------------------------------------

TIMES = st.floats(0, 4, allow_subnormal=False)
REQUESTS = st.lists(st.tuples(TIMES, st.integers(1, 5), st.none() | TIMES), max_size=20)


@settings(max_examples=60)
@given(REQUESTS, st.integers(1, 3), st.floats(0, 2, allow_subnormal=False), st.booleans())
@in_virtual_time
async def test_everybody_who_stays_is_answered_and_who_leaves_the_queue_never_executes(
    requests: list[tuple[float, int, float | None]], count: int, seconds: float, patient: bool
) -> None:
    statistics = Statistics()
    instances = [FakeInstance(f"i{n}", seconds=seconds) for n in range(count)]
    batcher = DynamicBatcher(PATIENT if patient else EAGER, instances)
    unexecuted = set()

    async def call(id: str, arrival: float, rows: int, leaves: float | None) -> None:
        await asyncio.sleep(arrival)
        inference = Inference(make_request(id, rows), rows, statistics)
        batcher.schedule(inference)
        try:
            async with asyncio.timeout(leaves):
                assert await marks(inference.stream) == [id]
        except TimeoutError:
            unexecuted.update([] if inference.compute_start else [id])
            inference.stream.close()

    await asyncio.gather(*(call(str(n), *request) for n, request in enumerate(requests)))
    await batcher.drain()
    executed = [id for instance in instances for batch in instance.batches for id in batch]
    assert sorted(executed) == sorted({str(n) for n in range(len(requests))} - unexecuted)
    assert statistics.pending == statistics.in_flight == 0
    assert statistics.success.count + statistics.fail.count == len(requests)


POLICY = st.builds(
    LevelPolicy,
    timeout=st.sampled_from([0.0, 0.5, 2.0]),
    delays=st.booleans(),
    overridable=st.booleans(),
    max_queue_size=st.sampled_from([0, 2]),
)
SETTINGS = st.builds(
    BatcherSettings,
    policy=st.builds(
        BatchPolicy,
        st.just(4),
        st.sampled_from([frozenset(), frozenset({2}), frozenset({3})]),
        st.sampled_from([0.0, 1.0]),
        st.sampled_from([0, 4]),
        buckets=st.sampled_from([(), (1,)]),
    ),
    levels=st.builds(PriorityLevels, st.just(2), st.just(1), POLICY, st.just({})),
    signature=st.just(lambda request: None),
)
VARIED = st.lists(
    st.tuples(
        TIMES,
        st.integers(1, 3),
        st.integers(1, 2),
        st.integers(0, 3),
        st.sampled_from([0, 300_000, 3_000_000]),
        st.none() | TIMES,
    ),
    max_size=20,
)


@settings(max_examples=80)
@given(SETTINGS, st.booleans(), VARIED, st.integers(1, 3), st.floats(0, 2, allow_subnormal=False))
@in_virtual_time
async def test_whatever_the_policies_everybody_is_answered_rejected_or_gone_once(
    batching: BatcherSettings,
    ordered: bool,
    requests: list[tuple[float, int, int, int, int, float | None]],
    count: int,
    seconds: float,
) -> None:
    ordered = ordered and not batching.levels.default_policy.delays
    statistics, loop = Statistics(), asyncio.get_running_loop()
    instances = [FakeInstance(f"i{n}", seconds=seconds) for n in range(count)]
    batcher = DynamicBatcher(replace(batching, preserve_ordering=ordered), instances)
    answered: set[str] = set()
    rejected: set[str] = set()
    left: set[str] = set()
    latest: dict[str, float] = {}
    policy = batching.levels.default_policy

    async def call(
        id: str,
        came: float,
        rows: int,
        width: int,
        priority: int,
        asked: int,
        stays: float | None,
    ) -> None:
        await asyncio.sleep(came)
        request = make_request(id, rows, width, priority=priority, timeout=asked)
        inference = Inference(request, rows, statistics)
        arrival = loop.time()
        latest[id] = inf if policy.delays else arrival + (policy.patience(asked / 1e6) or inf)
        try:
            batcher.schedule(inference)
        except RejectedError as error:
            assert policy.max_queue_size
            inference.stream.fail(error)
            rejected.add(id)
            return
        try:
            async with asyncio.timeout(stays):
                assert await marks(inference.stream) == [id]
                answered.add(id)
        except RejectedError:
            rejected.add(id)
            assert loop.time() == pytest.approx(latest[id], abs=0.01)
        except TimeoutError:  # perhaps in the very moment in which the request was rejected
            gone = rejected if isinstance(inference.stream.error, RejectedError) else left
            gone.add(id)
            inference.stream.close()

    await asyncio.gather(*(call(str(n), *request) for n, request in enumerate(requests)))
    await batcher.drain()
    executed = [id for instance in instances for batch in instance.batches for id in batch]
    assert len(executed) == len(set(executed))
    for instance in instances:
        for batch, began in zip(instance.batches, instance.began, strict=True):
            assert began <= min(latest[id] for id in batch) + 0.01
    assert answered <= set(executed) <= answered | left
    assert answered | rejected | left == {str(n) for n in range(len(requests))}
    assert statistics.pending == statistics.in_flight == 0
    assert statistics.failures[FailureReason.REJECTED] == len(rejected)
