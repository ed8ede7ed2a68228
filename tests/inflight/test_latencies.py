"""Optional latency statistics: quantiles, and the first response."""

from __future__ import annotations

import time

import pytest

from fakes import make_inference
from penstock.core.request import InferenceResponse
from penstock.core.tensor import Tensor
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics, SummarizedDuration, SummarizedStatistics
from penstock.metrics.histogram import Histogram


def answer() -> InferenceResponse:
    return InferenceResponse({"OUT": Tensor.from_strings(["a"])}, final=False)


def following(statistics: Statistics) -> Inference:
    """A request that an instance has taken, of a model whose responses are looked at."""
    inference = make_inference(statistics=statistics)
    inference.stream.transform = inference.counting_responses(None)
    inference.started(time.monotonic_ns())
    return inference


def test_a_bucket_counts_what_is_not_above_its_bound() -> None:
    histogram = Histogram([10, 20])
    for number in (10, 10.5, 20, 21):
        histogram.observe(number)
    assert histogram.total == 61.5
    assert histogram.buckets == ((10, 1), (20, 3), (float("inf"), 4))


@pytest.mark.contract("DC-06")
def test_only_the_first_response_is_observed() -> None:
    histogram = Histogram([100])
    for responses in (1, 3):
        inference = following(Statistics(first_response=histogram))
        inference.start -= 50_000_000
        inference.stream.transform = inference.counting_responses(None)
        for _ in range(responses):
            inference.stream.send(answer())
        inference.stream.end()
    assert histogram.buckets[-1][1] == 2
    assert histogram.buckets[0][1] == 2
    assert 100 <= histogram.total < 200


@pytest.mark.contract("DC-06")
def test_a_request_without_a_response_is_not_observed() -> None:
    histogram = Histogram([100])
    following(Statistics(first_response=histogram)).stream.end()
    assert histogram.buckets[-1][1] == 0


def test_responses_are_counted_by_index_as_well() -> None:
    statistics = Statistics(first_response=Histogram([100]), each_response=True)
    inference = following(statistics)
    inference.stream.send(answer())
    inference.stream.send(answer())
    assert sorted(statistics.responses) == [0, 1]
    assert statistics.first_response is not None
    assert statistics.first_response.buckets[-1][1] == 1


def test_responses_are_not_transformed_without_statistics_of_them() -> None:
    assert not Statistics().follows_responses
    assert make_inference(statistics=Statistics()).counting_responses(None) is None


@pytest.mark.contract("ME-15")
def test_summaries_get_what_the_sums_get() -> None:
    statistics = SummarizedStatistics()
    inference = make_inference(statistics=statistics)
    inference.start -= 9_000_000
    now = inference.start + 2_000_000
    inference.started(now)
    inference.compute_input_end = now + 1_000_000
    inference.compute_output_start = now + 3_000_000
    inference.compute_end = now + 6_000_000
    inference.stream.send(InferenceResponse({}, final=True))
    durations = (
        statistics.queue,
        statistics.compute_input,
        statistics.compute_infer,
        statistics.compute_output,
    )
    assert [_median(duration) for duration in durations] == [
        pytest.approx(ms * 1000, rel=0.01) for ms in (2, 1, 2, 3)
    ]
    assert _median(statistics.success) == pytest.approx(statistics.success.ns // 1000, rel=0.01)
    assert sum(statistics.queue_times) == statistics.queue.count == 1


def _median(duration: object) -> float:
    assert isinstance(duration, SummarizedDuration)
    return duration.summary.quantiles([0.5])[0]
