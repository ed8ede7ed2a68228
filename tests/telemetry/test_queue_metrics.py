"""Histograms of batch sizes and queue times."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from penstock.inflight.statistics import QUEUE_BOUNDS, Statistics
from penstock.metrics.exposition import render
from penstock.models.serving.answers import ModelStatistics
from penstock.telemetry.families import queue_families


def _values(statistics: Statistics) -> dict[tuple[str, str], float]:
    """Samples by name and upper bound."""
    page = render(queue_families([ModelStatistics("m", "1", statistics)]))
    return {
        (sample.name, sample.labels.get("le", "")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_a_model_that_has_done_nothing_has_no_histogram() -> None:
    assert _values(Statistics()) == {}


def test_batches_are_counted_by_their_rows() -> None:
    statistics = Statistics()
    for rows in (1, 1, 3, 4, 300):
        statistics.executed(rows, 0, 0, 0)
    values = _values(statistics)
    bounds = ("1", "2", "4", "256", "+Inf")
    assert [values["penstock_batch_size_bucket", le] for le in bounds] == [2, 2, 4, 4, 5]
    assert values["penstock_batch_size_sum", ""] == 309
    assert values["penstock_batch_size_count", ""] == 5


def test_the_page_shows_queue_times() -> None:
    statistics = Statistics()
    statistics.executed(1, 0, 0, 0)
    for ns in (0, 63_000, 64_000, 2_000_000, 100_000_000_000):
        statistics.waited(ns)
    values = _values(statistics)
    name = "penstock_queue_duration_seconds"
    bounds = ("6.4e-05", "0.000256", "0.004096", "67.108864", "+Inf")
    assert [values[f"{name}_bucket", le] for le in bounds] == [2, 3, 4, 4, 5]
    assert values[f"{name}_sum", ""] == pytest.approx(100.002127)


@given(st.lists(st.integers(0, 200_000_000), max_size=30))
def test_each_bucket_counts_shorter_waits(waits: list[int]) -> None:
    statistics = Statistics()
    statistics.executed(1, 0, 0, 0)
    for microseconds in waits:
        statistics.waited(microseconds * 1000)
    (family,) = (
        f for f in queue_families([ModelStatistics("m", "1", statistics)]) if "q" in f.name
    )
    (series,) = family.series
    assert dict(series.buckets) == {
        bound: sum(wait / 1e6 < bound for wait in waits) for bound in (*QUEUE_BOUNDS, inf)
    }
