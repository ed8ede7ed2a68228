"""Every request is answered, rejected or cancelled, exactly once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import FakeInstance, in_virtual_time, make_request, marks
from harness.examples import examples
from penstock.core.errors import RejectedError
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import FailureReason, Statistics
from penstock.scheduling.batching.batch_queue import BatchPolicy
from penstock.scheduling.batching.dynamic_batcher import BatcherSettings, DynamicBatcher
from penstock.scheduling.batching.priority import LevelPolicy, PriorityLevels
from scheduling.batching.batcher.scheduled import EAGER, PATIENT

TIMES = st.floats(0, 4, allow_subnormal=False)
REQUESTS = st.lists(st.tuples(TIMES, st.integers(1, 5), st.none() | TIMES), max_size=20)


@settings(max_examples=examples(60))
@given(REQUESTS, st.integers(1, 3), st.floats(0, 2, allow_subnormal=False), st.booleans())
@in_virtual_time
async def test_requests_are_answered_unless_cancelled_and_never_executed_after(
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


@settings(max_examples=examples(80))
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
        latest[id] = inf if policy.delays else arrival + (policy.queue_timeout(asked / 1e6) or inf)
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
