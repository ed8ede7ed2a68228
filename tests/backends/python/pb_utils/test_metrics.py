"""`MetricFamily` and `Metric`, over a server that holds the values."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from backends.python.scripted import FakeRuntime
from penstock.metrics.exposition import render
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.metrics import MetricFamily

COUNTER, GAUGE, HISTOGRAM = MetricFamily.COUNTER, MetricFamily.GAUGE, MetricFamily.HISTOGRAM


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(TritonModelException) as error:
        act()
    return str(error.value)


def test_page_shows_what_a_model_counts(process: FakeRuntime) -> None:
    """As the recorded page of a Triton server with this model."""
    family = MetricFamily(name="peer_requests", description="requests seen", kind=COUNTER)
    metric = family.Metric(labels={"model": "custom_metrics"})
    metric.increment(1)
    assert render(process.metrics.snapshot()) == (
        "# HELP peer_requests requests seen\n"
        "# TYPE peer_requests counter\n"
        'peer_requests{model="custom_metrics"} 1\n'
    )


def test_metric_returns_its_value(process: FakeRuntime) -> None:
    metric = MetricFamily("g", "a gauge", GAUGE).Metric()
    metric.set(5)
    metric.increment(-2)
    assert metric.value() == 3.0


def test_histogram_takes_bounds_and_observations(process: FakeRuntime) -> None:
    metric = MetricFamily("h", "a histogram", HISTOGRAM).Metric({"a": "b"}, [1, 2])
    metric.observe(1.5)
    (series,) = process.metrics.snapshot()[0].series
    assert [count for _, count in series.buckets] == [0, 1, 1]


def test_metric_keeps_its_family(process: FakeRuntime) -> None:
    metric = MetricFamily("g", "a gauge", GAUGE).Metric()
    gc.collect()
    metric.set(1)
    assert metric.value() == 1.0


def test_dropped_family_goes_with_the_next_operation(process: FakeRuntime) -> None:
    MetricFamily("gone", "", GAUGE).Metric()
    gc.collect()
    MetricFamily("g", "", GAUGE).Metric().set(1)
    assert [family.name for family in process.metrics.snapshot()] == ["g"]


def test_name_of_another_kind_is_refused(process: FakeRuntime) -> None:
    kept = MetricFamily("n", "", GAUGE)
    assert refused(lambda: MetricFamily("n", "", COUNTER)) == (
        "Error when creating MetricFamily: Family name already exists with different type"
    )
    assert kept


@pytest.mark.parametrize(
    ("kind", "act", "text"),
    [
        (
            COUNTER,
            lambda metric: metric.increment(-1),
            "Failed to increment metric value: TRITONSERVER_METRIC_KIND_COUNTER can only be"
            " incremented monotonically by non-negative values.",
        ),
        (
            COUNTER,
            lambda metric: metric.set(1),
            "Failed to set metric value: TRITONSERVER_METRIC_KIND_COUNTER does not support Set",
        ),
        (
            GAUGE,
            lambda metric: metric.observe(1),
            "Failed to observe metric value: TRITONSERVER_METRIC_KIND_GAUGE does not support"
            " Observe",
        ),
        (
            HISTOGRAM,
            lambda metric: metric.value(),
            "Failed to get metric value: TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value",
        ),
    ],
)
def test_wrong_operation_is_refused_before_it_is_sent(
    process: FakeRuntime, kind: Any, act: Callable[[Any], object], text: str
) -> None:
    family = MetricFamily("n", "", kind)
    metric = family.Metric(buckets=[1.0] if kind is HISTOGRAM else None)
    assert refused(lambda: act(metric)) == text
    assert process.operations == ["family", "create"]


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        (GAUGE, {"labels": "x"}, "Failed to create metric. Labels must be a dictionary."),
        (GAUGE, {"buckets": []}, "Failed to create metric. Unexpected buckets found."),
        (HISTOGRAM, {}, "Failed to create metric. Missing required buckets."),
        (HISTOGRAM, {"buckets": {1.0}}, "Failed to create metric. Buckets must be a list."),
        (
            HISTOGRAM,
            {"buckets": [2.0, 1.0]},
            "Error when creating Metric: Bucket Boundaries must be strictly sorted",
        ),
    ],
)
def test_wrong_arguments_are_refused(
    process: FakeRuntime, kind: Any, arguments: dict[str, Any], text: str
) -> None:
    family = MetricFamily("n", "", kind)
    assert refused(lambda: family.Metric(**arguments)) == text
