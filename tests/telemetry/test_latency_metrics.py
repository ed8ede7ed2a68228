"""Latency metrics on the metrics page."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.recorded import log, needs_answers
from penstock.inflight.statistics import Statistics, SummarizedStatistics
from penstock.metrics.histogram import Histogram
from penstock.metrics.measurement import Measurement, Quantile
from penstock.models.serving.answers import ModelStatistics
from penstock.telemetry.metrics import MetricsPage


def _page(statistics: Statistics, measurement: Measurement | None = None) -> str:
    models = [ModelStatistics("m", "1", statistics)]
    return MetricsPage(lambda: models, lambda: (), latencies=measurement).text()


def _values(page: str) -> dict[tuple[str, str], float]:
    """Samples by name and the label that sets them apart."""
    return {
        (sample.name, sample.labels.get("le", sample.labels.get("quantile", ""))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


@pytest.mark.contract("DC-06", "ME-14")
def test_first_responses_are_a_histogram() -> None:
    statistics = Statistics(first_response=Histogram([100.0, 500.0]))
    assert statistics.first_response is not None
    for milliseconds in (20.5, 120.0, 9000.0):
        statistics.first_response.observe(milliseconds)
    values = _values(_page(statistics))
    name = "nv_inference_first_response_histogram_ms"
    assert [values[f"{name}_bucket", le] for le in ("100", "500", "+Inf")] == [1, 2, 3]
    assert values[f"{name}_sum", ""] == 9140.5
    assert name not in _page(Statistics())


@needs_answers
@pytest.mark.contract("ME-15", "ME-18")
def test_summaries_are_as_recorded() -> None:
    """Names, help and types without counters of latencies are those of the real server."""
    measurement = Measurement(counter_latencies=False, summary_latencies=True)
    page = _page(SummarizedStatistics(), measurement)
    comments = re.findall(r"^# \S+ (nv_inference_\S+) .*$", page, re.MULTILINE)
    recorded = log("metrics_summary_latencies_help.txt")
    for kind in ("HELP", "TYPE"):
        pattern = rf"^# {kind} nv_inference_\S+ .*$"
        ours = re.findall(pattern, page, re.MULTILINE)
        assert sorted(ours) == sorted(re.findall(pattern, recorded, re.MULTILINE))
    assert comments


@pytest.mark.contract("ME-15", "ME-16")
def test_a_summary_has_the_quantiles_that_are_asked_for() -> None:
    statistics = SummarizedStatistics()
    for microseconds in range(1, 101):
        statistics.waited(microseconds * 1000)
    quantiles = (Quantile(0.5, 0.05), Quantile(0.99, 0.001))
    values = _values(_page(statistics, Measurement(summary_quantiles=quantiles)))
    name = "nv_inference_queue_summary_us"
    assert {key: value for key, value in values.items() if key[0].startswith(name)} == {
        (name, "0.5"): 50,
        (name, "0.99"): 99,
        (f"{name}_count", ""): 100,
        (f"{name}_sum", ""): 5050,
    }


@pytest.mark.contract("ME-17")
def test_requests_of_models_with_a_cache_have_no_summary_but_hits_have() -> None:
    statistics = SummarizedStatistics()
    assert "nv_inference_request_summary_us" in _page(statistics)
    assert "nv_cache_hit_summary_per_model" not in _page(statistics)
    statistics.cached = True
    assert "nv_inference_request_summary_us" not in _page(statistics)
    assert "nv_cache_hit_summary_per_model" in _page(statistics)
    assert "nv_cache_miss_summary_per_model" in _page(statistics)


@pytest.mark.contract("ME-18")
def test_without_counters_of_latencies_requests_are_counted_all_the_same() -> None:
    statistics = Statistics(cached=True)
    statistics.success.add(5000)
    page = _page(statistics, Measurement(counter_latencies=False))
    assert _values(page)["nv_inference_request_success_total", ""] == 1
    assert not re.search("nv_.*_duration_(us|per_model)", page)
    assert "nv_cache_num_hits_per_model" in page
