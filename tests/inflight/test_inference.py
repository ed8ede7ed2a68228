"""One request in flight, and its statistics."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from fakes import make_inference, make_response, marks
from harness.examples import examples
from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    RejectedError,
    RequestCancelledError,
    UnavailableError,
)
from penstock.core.request import InferenceResponse
from penstock.core.timeline import Trace
from penstock.inflight.inference import Inference, wait_until_answered
from penstock.inflight.statistics import Duration, FailureReason, Statistics


def _answer(inference: Inference) -> None:
    inference.stream.send(make_response(final=True))


# -- the way -------------------------------------------------------------------------------------


def test_the_stream_names_the_version_that_answers() -> None:
    assert make_inference().stream.model_version == "1"


@pytest.mark.contract("V-19")
def test_a_request_that_waits_is_pending_and_one_that_executes_is_not() -> None:
    statistics = Statistics()
    inference = make_inference(statistics=statistics)
    assert (statistics.pending, statistics.in_flight) == (1, 1)
    inference.started(time.monotonic_ns())
    assert (statistics.pending, statistics.in_flight) == (0, 1)


@pytest.mark.contract("V-19")
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("end", ["end", "close"])
def test_a_request_is_released_once_wherever_it_ends(begun: bool, end: str) -> None:
    statistics = Statistics()
    inference = make_inference(statistics=statistics)
    if begun:
        inference.started(time.monotonic_ns())
    getattr(inference.stream, end)()
    getattr(inference.stream, end)()
    assert (statistics.pending, statistics.in_flight) == (0, 0)


@pytest.mark.contract("V-19")
def test_a_request_that_wants_to_run_again_is_pending_again() -> None:
    statistics = Statistics()
    inference = make_inference(statistics=statistics)
    inference.started(time.monotonic_ns())
    inference.restarted()
    assert (statistics.pending, statistics.in_flight) == (1, 1)
    inference.stream.close()
    assert (statistics.pending, statistics.in_flight) == (0, 0)


def test_a_request_is_abandoned_when_its_reader_has_left() -> None:
    inference = make_inference()
    assert not inference.abandoned
    inference.stream.close()
    assert inference.abandoned


async def test_an_answered_request_is_counted_with_its_rows() -> None:
    statistics = Statistics()
    inference = make_inference(rows=3, statistics=statistics)
    inference.started(time.monotonic_ns())
    _answer(inference)
    assert len(await marks(inference.stream)) == 1
    assert (statistics.success.count, statistics.inference_count) == (1, 3)
    assert statistics.fail == Duration()


def test_a_request_is_answered_when_the_last_response_was_sent_and_counts_once() -> None:
    statistics = Statistics()
    inference = make_inference(statistics=statistics)
    inference.started(time.monotonic_ns())
    inference.stream.send(make_response(1))
    assert statistics.success.count == 0
    _answer(inference)
    inference.stream.close()
    assert (statistics.success.count, statistics.in_flight) == (1, 0)


def test_the_times_of_the_stations_add_up() -> None:
    statistics = Statistics()
    inference = make_inference(statistics=statistics)
    start = inference.start = time.monotonic_ns() - 1000
    inference.started(start + 100)
    inference.compute_input_end = start + 120
    inference.compute_output_start = start + 420
    inference.compute_end = start + 425
    _answer(inference)
    spent = [statistics.queue, statistics.compute_input, statistics.compute_infer]
    assert [duration.ns for duration in spent] == [100, 20, 300]
    assert (statistics.compute_output.ns, statistics.compute_output.count) == (5, 1)
    assert statistics.success.ns >= 1000


def test_stations_that_were_not_reported_take_no_time() -> None:
    statistics = Statistics()
    inference = make_inference(statistics=statistics)
    start = inference.start
    inference.started(start + 50)
    _answer(inference)
    assert (statistics.queue.ns, statistics.compute_input.ns) == (50, 0)
    assert statistics.compute_infer.ns >= 0
    assert statistics.compute_output.ns >= 0


def test_the_last_inference_is_in_milliseconds() -> None:
    statistics = Statistics()
    before = time.time_ns() // 1_000_000
    _answer(make_inference(statistics=statistics))
    assert before <= statistics.last_inference <= time.time_ns() // 1_000_000


def test_the_last_mark_of_a_request_is_where_its_span_ends() -> None:
    inference = make_inference()
    timeline = inference.timeline = Trace(1).root.nest("m", "1", "", inference.start)
    _answer(inference)
    assert timeline.marks[-1] == ("REQUEST_END", timeline.end)


async def test_whoever_waits_for_answers_waits_for_the_last_one() -> None:
    requests = [make_inference(), make_inference(), make_inference()]
    requests[0].stream.close()  # nobody will answer it
    waiting = asyncio.create_task(wait_until_answered(requests))
    for inference in requests[1:]:
        await asyncio.sleep(0)
        assert not waiting.done()
        _answer(inference)
    await waiting


@pytest.mark.parametrize(
    ("error", "from_backend", "reason"),
    [
        (RequestCancelledError("gone"), True, FailureReason.CANCELED),
        (RejectedError("full"), False, FailureReason.REJECTED),
        (InternalError("broken"), True, FailureReason.BACKEND),
        (UnavailableError("down"), False, FailureReason.OTHER),
    ],
)
def test_a_failure_is_counted_by_its_reason(
    error: InferenceError, from_backend: bool, reason: FailureReason
) -> None:
    statistics = Statistics()
    make_inference(statistics=statistics).fail(error, from_backend=from_backend)
    assert dict(statistics.failures) == {reason: 1}
    assert (statistics.fail.count, statistics.success.count) == (1, 0)


def test_a_failed_request_counts_neither_rows_nor_compute_times() -> None:
    statistics = Statistics()
    inference = make_inference(rows=5, statistics=statistics)
    inference.started(time.monotonic_ns())
    inference.fail(InternalError("broken"))
    assert statistics.inference_count == statistics.last_inference == 0
    assert statistics.queue == statistics.compute_infer == Duration()


def test_a_final_response_that_carries_an_error_is_a_failure() -> None:
    statistics = Statistics()
    inference = make_inference(statistics=statistics)
    inference.stream.send(InferenceResponse(final=True, error=InternalError("in-band")))
    assert (statistics.fail.count, statistics.success.count) == (1, 0)


def test_a_reader_that_leaves_is_a_cancellation() -> None:
    statistics = Statistics()
    make_inference(statistics=statistics).stream.close()
    assert statistics.failures == {FailureReason.CANCELED: 1}


# -- exactness -----------------------------------------------------------------------------------


class Requests(RuleBasedStateMachine):
    """Any number of requests, each at its own station."""

    waiting = Bundle("waiting")
    running = Bundle("running")

    @initialize()
    def begin(self) -> None:
        self.statistics = Statistics()
        self.expected = {"waiting": 0, "running": 0, "good": 0, "bad": 0, "rows": 0}

    @rule(target=waiting, rows=st.integers(1, 4))
    def admit(self, rows: int) -> Inference:
        self.expected["waiting"] += 1
        return make_inference(rows=rows, statistics=self.statistics)

    @rule(target=running, inference=consumes(waiting))
    def start(self, inference: Inference) -> Inference:
        self._left("waiting")
        self.expected["running"] += 1
        inference.started(time.monotonic_ns())
        return inference

    @rule(inference=running)
    def stream(self, inference: Inference) -> None:
        inference.stream.send(make_response())

    @rule(inference=running)
    def take(self, inference: Inference) -> None:
        inference.stream.take_ready()

    @rule(inference=consumes(running), by_flag=st.booleans())
    def answer(self, inference: Inference, by_flag: bool) -> None:
        self._left("running", "good", inference.rows)
        if by_flag:
            _answer(inference)
        else:
            inference.stream.end()
        inference.stream.close()

    @rule(inference=consumes(running), from_backend=st.booleans())
    def fail_running(self, inference: Inference, from_backend: bool) -> None:
        self._left("running", "bad")
        inference.fail(InternalError("broken"), from_backend=from_backend)
        _answer(inference)

    @rule(inference=consumes(waiting))
    def reject(self, inference: Inference) -> None:
        self._left("waiting", "bad")
        inference.fail(RejectedError("full"))

    @rule(inference=consumes(waiting))
    def refuse(self, inference: Inference) -> None:
        """By a scheduler, for what the client did: that is no failure of the model."""
        self._left("waiting")
        inference.refused(InvalidRequestError("no such sequence"))

    @rule(target=waiting, inference=consumes(running))
    def reschedule(self, inference: Inference) -> Inference:
        self._left("running")
        self.expected["waiting"] += 1
        inference.restarted()
        return inference

    @rule(inference=consumes(waiting))
    def leave_the_queue(self, inference: Inference) -> None:
        self._left("waiting", "bad")
        inference.stream.close()
        inference.stream.close()

    @rule(inference=consumes(running))
    def leave_the_execution(self, inference: Inference) -> None:
        self._left("running", "bad")
        inference.stream.close()
        _answer(inference)

    def _left(self, station: str, outcome: str = "", rows: int = 0) -> None:
        self.expected[station] -= 1
        self.expected["rows"] += rows
        if outcome:
            self.expected[outcome] += 1

    @invariant()
    def the_gauges_are_exact(self) -> None:
        expected, statistics = self.expected, self.statistics
        assert statistics.pending == expected["waiting"]
        assert statistics.in_flight == expected["waiting"] + expected["running"]

    @invariant()
    def every_request_that_ended_is_counted_once(self) -> None:
        expected, statistics = self.expected, self.statistics
        assert statistics.success.count == statistics.queue.count == expected["good"]
        assert statistics.fail.count == statistics.failures.total() == expected["bad"]
        assert statistics.inference_count == expected["rows"]


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=examples(40), stateful_step_count=40)
