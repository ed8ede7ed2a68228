"""Times of requests to the nanosecond, by a clock that the tests set."""

from __future__ import annotations

import time

import pytest

from fakes import make_inference, make_response
from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    RejectedError,
    RequestCancelledError,
)
from penstock.core.request import ExchangePart, InferenceResponse
from penstock.core.tensor import Tensor
from penstock.core.timeline import Batch, Trace
from penstock.inflight.deadlines import TimingWheel
from penstock.inflight.inference import (
    BodyParts,
    ComputeTimes,
    Inference,
    RunningRequests,
    TracedResponses,
    start_batch,
)
from penstock.inflight.statistics import (
    QUEUE_BOUNDS,
    Duration,
    FailureReason,
    FirstResponse,
    Phase,
    ResponseTimes,
    Statistics,
    SummarizedDuration,
    SummarizedStatistics,
)
from penstock.metrics.histogram import Histogram

MS = 1_000_000


class Clock:
    """Nanoseconds that pass only when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000 * MS

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic_ns", clock)
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_456_789)
    return clock


def answer(*, final: bool = False) -> InferenceResponse:
    return InferenceResponse({"OUT": Tensor.from_strings(["a"])}, final=final)


def test_an_answer_is_counted_to_the_millisecond_of_the_epoch(clock: Clock) -> None:
    statistics = Statistics()
    inference = make_inference(statistics=statistics)
    clock.now += 5
    inference.started(clock.now)
    clock.now += 11
    inference.stream.send(make_response(final=True))
    assert statistics.last_inference == 1_700_000_000_123
    assert (statistics.success.ns, statistics.queue.ns) == (16, 5)
    # Without the marks of an instance, nothing is known of the parts of an execution.
    parts = (statistics.compute_input, statistics.compute_infer, statistics.compute_output)
    assert [one.ns for one in parts] == [0, 11, 0]


def test_an_answer_without_an_instance_has_waited_all_its_time(clock: Clock) -> None:
    statistics = Statistics()
    inference = make_inference(statistics=statistics)
    clock.now += 9
    inference.stream.send(make_response(final=True))
    assert (statistics.queue.ns, statistics.compute_infer.ns, statistics.pending) == (9, 0, 0)


def test_marks_that_come_in_another_order_count_nothing_negative(clock: Clock) -> None:
    statistics, within = Statistics(), ComputeTimes()
    inference = Inference(make_inference().request, 2, statistics, within=within)
    inference.started(clock.now)
    inference.compute_input_end = clock.now + 30
    inference.compute_output_start = clock.now + 20
    inference.compute_end = clock.now + 10
    inference.stream.send(make_response(final=True))
    parts = (statistics.compute_input, statistics.compute_infer, statistics.compute_output)
    assert [one.ns for one in parts] == [30, 0, 0]
    assert (within.compute_input, within.compute_infer, within.compute_output) == (30, 0, 0)
    within.add(1, 2, 3)
    assert (within.compute_input, within.compute_infer, within.compute_output) == (31, 2, 3)


def test_a_hit_counts_its_wait_and_its_lookup_and_no_execution(clock: Clock) -> None:
    statistics = Statistics()
    inference = make_inference(rows=2, statistics=statistics)
    inference.found_in_cache(clock.now + 4, clock.now + 10)
    clock.now += 15
    inference.stream.send(make_response(final=True))
    times = (statistics.success.ns, statistics.queue.ns, statistics.cache_hit.ns)
    assert times == (15, 4, 6)
    assert (statistics.inference_count, statistics.compute_infer.count) == (0, 0)


@pytest.mark.parametrize(
    ("error", "from_backend", "reason"),
    [
        (RequestCancelledError(), False, FailureReason.CANCELED),
        (RejectedError("full"), False, FailureReason.REJECTED),
        (InternalError("x"), True, FailureReason.BACKEND),
        (InternalError("x"), False, FailureReason.OTHER),
    ],
)
def test_a_failure_counts_its_time_and_its_reason(
    clock: Clock, error: InferenceError, from_backend: bool, reason: FailureReason
) -> None:
    statistics = Statistics()
    inference = make_inference(statistics=statistics)
    clock.now += 7
    inference.fail(error, from_backend=from_backend)
    assert statistics.fail == Duration(1, 7)
    assert dict(statistics.failures) == {reason: 1}
    cancelled = {Phase.QUEUED: 1} if reason is FailureReason.CANCELED else {}
    assert dict(statistics.cancelled) == cancelled
    assert inference.error is error


def test_a_request_that_no_scheduler_took_counts_only_where_a_queue_refused_it() -> None:
    statistics = Statistics()
    refused = make_inference(statistics=statistics)
    refused.timeline = Trace(0).root
    refused.refused(error := InvalidRequestError("x"))
    assert (statistics.pending, statistics.in_flight, statistics.fail.count) == (0, 0, 0)
    assert refused.timeline.error is error
    make_inference(statistics=statistics).refused(RejectedError("full"))
    assert (statistics.pending, statistics.in_flight, statistics.fail.count) == (0, 0, 1)


def test_the_phases_of_a_traced_request_stand_in_its_timeline(clock: Clock) -> None:
    statistics, trace = Statistics(), Trace(0, frozenset({"TIMESTAMPS"}))
    inference = make_inference(statistics=statistics)
    inference.record(trace.root, "m")
    timeline = inference.timeline
    assert timeline is not None
    assert inference.request.scope.timeline is timeline
    clock.now += 3
    start_batch([inference], clock.now, "m_0")
    inference.compute_input_end = clock.now + 1
    inference.compute_output_start = clock.now + 2
    inference.compute_end = clock.now + 4
    clock.now += 6
    inference.stream.send(make_response(final=True))
    begun = inference.start
    assert timeline.marks == [
        ("REQUEST_START", begun),
        ("QUEUE_START", begun),
        ("COMPUTE_START", begun + 3),
        ("COMPUTE_INPUT_END", begun + 4),
        ("COMPUTE_OUTPUT_START", begun + 5),
        ("COMPUTE_END", begun + 7),
        ("REQUEST_END", begun + 9),
    ]
    assert timeline.end == begun + 9
    batch = timeline.batch
    assert batch is not None
    assert (batch.begin, batch.end, batch.requests, batch.rows) == (begun + 3, begun + 7, 1, 1)
    ((bucket, exemplar),) = statistics.queue_exemplars.items()
    assert (bucket, exemplar.trace_id, exemplar.value) == (0, trace.text_id, 3e-9)


def test_a_stream_that_ends_in_its_execution_has_no_marks_of_later(clock: Clock) -> None:
    inference = make_inference()
    inference.record(Trace(0).root, "m")
    start_batch([inference], clock.now, "m_0")
    clock.now += 6
    inference.stream.close()
    timeline = inference.timeline
    assert timeline is not None
    begun = inference.start
    assert timeline.marks[2:] == [
        ("COMPUTE_START", begun),
        ("COMPUTE_INPUT_END", begun),
        ("COMPUTE_OUTPUT_START", begun + 6),
        ("COMPUTE_END", begun + 6),
        ("REQUEST_END", begun + 6),
    ]
    assert timeline.facts == {"cancelled_while": "executing"}
    assert isinstance(timeline.error, RequestCancelledError)


def test_the_lookup_of_a_hit_stands_in_the_timeline(clock: Clock) -> None:
    inference = make_inference()
    inference.record(Trace(0).root, "m")
    inference.found_in_cache(clock.now + 1, clock.now + 2)
    inference.stream.send(make_response(final=True))
    assert inference.timeline is not None
    assert inference.timeline.facts == {"cache": "hit"}
    assert inference.timeline.marks[2:4] == [
        ("CACHE_LOOKUP_START", clock.now + 1),
        ("CACHE_LOOKUP_END", clock.now + 2),
    ]


def test_only_traced_requests_are_of_a_traced_batch() -> None:
    plain, traced = make_inference(rows=2), make_inference(rows=3)
    traced.record(Trace(0).root, "m")
    start_batch([plain, traced], 5, "m_0")
    assert traced.timeline is not None
    batch = traced.timeline.batch
    assert isinstance(batch, Batch)
    facts = (batch.requests, batch.rows, batch.instance, batch.traced, plain.compute_start)
    assert facts == (2, 5, "m_0", 1, 5)


def test_tensors_are_recorded_where_the_trace_takes_them() -> None:
    inference = make_inference()
    inference.record(Trace(0, frozenset({"TENSORS"})).root, "m")
    timeline = inference.timeline
    assert timeline is not None
    TracedResponses(timeline, None)(answer())
    taken = [(one.activity, one.name) for one in timeline.tensors]
    assert taken == [("TENSOR_QUEUE_INPUT", "IN"), ("TENSOR_BACKEND_OUTPUT", "OUT")]


def test_the_first_response_is_observed_once_in_milliseconds(clock: Clock) -> None:
    histogram = Histogram([100])
    observed = FirstResponse(histogram, clock.now, lambda _: make_response("changed"), "t" * 32)
    clock.now += 250 * MS
    assert [observed(make_response(n)).parameters["mark"] for n in range(2)] == ["changed"] * 2
    assert histogram.total == 250.0
    assert [one and one.trace_id for one in histogram.exemplars] == [None, "t" * 32]


def test_only_traces_that_can_be_found_are_exemplars(clock: Clock) -> None:
    for levels, traced in ((frozenset({"TIMESTAMPS"}), True), (frozenset[str](), False)):
        statistics, trace = Statistics(first_response=Histogram([100])), Trace(0, levels)
        inference = make_inference(statistics=statistics)
        inference.record(trace.root, "m")
        counting = inference.counting_responses(None)
        assert counting is not None
        counting(answer())
        assert statistics.first_response is not None
        found = [one.trace_id for one in statistics.first_response.exemplars if one]
        assert found == ([trace.text_id] if traced else [])


def test_the_time_of_each_response_runs_from_the_one_before(clock: Clock) -> None:
    statistics: dict[int, object] = {}
    times = ResponseTimes(statistics, lambda: clock.now - 5)  # type: ignore[arg-type]
    times(answer())
    clock.now += 8
    times(InferenceResponse())
    clock.now += 9
    times.ended(InternalError("x"))
    first, second, third = statistics.values()
    assert first.compute_infer == first.success == Duration(1, 5)  # type: ignore[attr-defined]
    assert second.empty_response == Duration(1, 8)  # type: ignore[attr-defined]
    assert third.fail == Duration(1, 9)  # type: ignore[attr-defined]


def test_what_no_instance_took_has_taken_no_time(clock: Clock) -> None:
    statistics: dict[int, object] = {}
    ResponseTimes(statistics, lambda: 0)(answer())  # type: ignore[arg-type]
    assert statistics[0].success == Duration(1, 0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("microseconds", "bucket"),
    [
        (0, 0),
        (63, 0),
        (64, 1),
        (255, 1),
        (256, 2),
        (67_108_863, 10),
        (67_108_864, 11),
        (1 << 60, 11),
    ],
)
def test_a_wait_is_counted_below_its_bound(microseconds: int, bucket: int) -> None:
    statistics = Statistics()
    statistics.waited(microseconds * 1000 + 999)
    assert statistics.queue_times.index(1) == bucket
    assert sum(statistics.queue_times) == statistics.queue.count == 1
    assert len(QUEUE_BOUNDS) == len(statistics.queue_times) - 1 == 11
    assert (QUEUE_BOUNDS[0], QUEUE_BOUNDS[1], QUEUE_BOUNDS[-1]) == (64e-6, 256e-6, 67.108864)
    statistics.traced_wait(microseconds * 1000, "t")
    assert statistics.queue_exemplars[bucket].value == microseconds / 1e6


def test_every_duration_of_an_answer_has_its_own_quantiles() -> None:
    statistics = SummarizedStatistics()
    statistics.succeeded(5_000_000, 4_000_000, 3_000_000, 2_000_000, 1_000_000)
    statistics.cache_hit.add(6_000_000)
    statistics.cache_miss.add(7_000_000)
    told = {}
    for name in (
        *("success", "queue", "compute_input", "compute_infer", "compute_output"),
        *("cache_hit", "cache_miss"),
    ):
        duration = getattr(statistics, name)
        assert isinstance(duration, SummarizedDuration)
        (middle,) = duration.summary.quantiles((0.5,))
        told[name] = (duration.count, duration.ns // MS, round(middle / 1000, 1))
    assert told == {
        "success": (1, 5, 5.0),
        "queue": (1, 4, 4.0),
        "compute_input": (1, 3, 3.0),
        "compute_infer": (1, 2, 2.0),
        "compute_output": (1, 1, 1.0),
        "cache_hit": (1, 6, 6.0),
        "cache_miss": (1, 7, 7.0),
    }


def test_a_head_is_no_part_of_a_body() -> None:
    parts = BodyParts(lambda _: make_response("counted"))
    head, body = ExchangePart(), ExchangePart(body=b"x")
    assert parts(head) is head
    assert parts(body).parameters == parts(answer()).parameters == {"mark": "counted"}


def test_callbacks_of_the_end_run_in_their_order() -> None:
    inference, told = make_inference(), list[str]()
    inference.also_at_end(lambda: told.append("first"))
    inference.also_at_end(lambda: told.append("second"))
    inference.on_left = lambda: told.append("left")
    inference.stream.end()
    assert told == ["first", "second", "left"]


def test_requests_are_found_by_either_id_and_forgotten_by_both() -> None:
    running = RunningRequests()
    one, same, bare = make_inference("id", call_id="call"), make_inference("id"), make_inference()
    for each in (one, same, bare):
        each.keep_in(running)
    assert (running.cancel("other"), running.cancel("")) == (0, 0)
    one.stream.end()
    assert running.cancel("call") == 0
    assert running.cancel("id") == 1
    assert running.cancel("id") == 0
    assert isinstance(same.error, RequestCancelledError)
    assert not bare.abandoned


def test_a_deadline_of_ten_seconds_is_fine_and_a_farther_one_is_coarse() -> None:
    wheel = TimingWheel[str]()
    wheel.add("near", 110.004, now=100.004)
    assert wheel.next() == pytest.approx(110.01)
    wheel = TimingWheel[str]()
    wheel.add("far", 110.9, now=100.0)
    assert wheel.next() == 110.0
    assert wheel.due(110.0) == []
    assert wheel.next() == pytest.approx(110.9)
    assert wheel.due(110.8995) == []
    assert wheel.due(110.9001) == ["far"]
