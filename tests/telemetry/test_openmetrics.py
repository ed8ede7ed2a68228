"""The metrics page as OpenMetrics."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock.inflight.statistics import SummarizedStatistics
from penstock.metrics.exposition import Family, MetricKind, Series
from penstock.metrics.histogram import Histogram
from penstock.metrics.measurement import Measurement
from penstock.models.serving.answers import Gauge, ModelStatistics
from penstock.system.machine import MachineUsage
from penstock.telemetry.metrics import MetricsPage
from penstock.telemetry.openmetrics import END, OpenMetricsWriter, prefers_openmetrics

COUNTER, GAUGE = MetricKind.COUNTER, MetricKind.GAUGE
HISTOGRAM, SUMMARY = MetricKind.HISTOGRAM, MetricKind.SUMMARY


def text_of(*families: Family, writer: OpenMetricsWriter | None = None) -> str:
    return "".join((writer or OpenMetricsWriter()).pieces(families)) + END


def parsed(text: str) -> dict[str, Metric]:
    """What Prometheus' own reference parser makes of the text, which it checks."""
    return {metric.name: metric for metric in text_string_to_metric_families(text)}


def one(name: str, kind: MetricKind, *series: Series) -> Family:
    return Family(name, "what it is", kind, series)


def test_counters_of_triton_keep_their_names() -> None:
    """A Prometheus stores what it reads here: dashboards ask for these names."""
    metric = parsed(text_of(one("nv_inference_count", COUNTER, Series((), 3))))[
        "nv_inference_count"
    ]
    assert metric.type == "unknown"
    assert [(sample.name, sample.value) for sample in metric.samples] == [("nv_inference_count", 3)]


def test_counters_named_as_such_are_counters() -> None:
    metric = parsed(text_of(one("penstock_x_total", COUNTER, Series((), 3))))["penstock_x"]
    assert metric.type == "counter"
    assert [sample.name for sample in metric.samples] == ["penstock_x_total"]


def test_a_counter_does_not_take_the_name_of_another() -> None:
    text = text_of(one("x", COUNTER, Series((), 3)), one("x_total", COUNTER, Series((), 4)))
    assert {name: metric.type for name, metric in parsed(text).items()} == {
        "x": "unknown",
        "x_total": "unknown",
    }


def test_buckets_have_exemplars() -> None:
    histogram = Histogram((0.1, 1.0))
    histogram.observe(0.5, "4bf92f3577b34da6a3ce929d0e0e4736")
    series = Series((), histogram.total, histogram.buckets, exemplars=histogram.exemplars)
    samples = parsed(text_of(one("h", HISTOGRAM, series)))["h"].samples
    found = {sample.labels["le"]: sample.exemplar for sample in samples if sample.exemplar}
    assert list(found) == ["1.0"]
    assert found["1.0"].labels == {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"}
    assert found["1.0"].value == 0.5


def test_a_histogram_of_what_may_be_negative_has_no_sum() -> None:
    series = Series((), -1.0, ((-1.0, 1), (math.inf, 2)))
    samples = parsed(text_of(one("h", HISTOGRAM, series)))["h"].samples
    assert [sample.name for sample in samples] == ["h_bucket", "h_bucket"]


def test_a_family_without_series_is_left_out() -> None:
    assert text_of(one("x", GAUGE)) == END


def test_later_pages_have_the_new_values() -> None:
    """What is kept of a page is the beginnings of its lines."""
    writer, labels = OpenMetricsWriter(), (("a", 'x" 1\n'), ("b", "\u2028"))

    def page(value: float, bound: float) -> str:
        return text_of(
            one("g", GAUGE, Series(labels, value)),
            one("h", HISTOGRAM, Series(labels, value, ((bound, 1), (math.inf, int(value))))),
            one("s", SUMMARY, Series(labels, value, quantiles=((0.5, value),), count=2)),
            writer=writer,
        )

    page(1, 0.5)
    assert page(7, 0.25) == text_of(
        one("g", GAUGE, Series(labels, 7)),
        one("h", HISTOGRAM, Series(labels, 7, ((0.25, 1), (math.inf, 7)))),
        one("s", SUMMARY, Series(labels, 7, quantiles=((0.5, 7),), count=2)),
    )


@given(
    st.lists(
        st.tuples(st.text(), st.floats(allow_nan=False), st.integers(0, 2**53)),
        min_size=1,
        unique_by=lambda each: each[0],
    )
)
def test_any_label_and_number_is_read_back(values: Iterable[tuple[str, float, int]]) -> None:
    series = [Series((("a", label),), number) for label, number, _ in values]
    counts = [Series((("a", label),), count, ((1.0, count), (math.inf, count)))
              for label, _, count in values]  # fmt: skip
    metrics = parsed(text_of(one("g", GAUGE, *series), one("h", HISTOGRAM, *counts)))
    assert [(s.labels["a"], s.value) for s in metrics["g"].samples] == [
        (label, number) for label, number, _ in values
    ]
    assert [s.value for s in metrics["h"].samples if s.name == "h_count"] == [
        count for _, _, count in values
    ]


def test_the_whole_page_is_valid() -> None:
    counted = SummarizedStatistics()
    counted.cached = True
    counted.first_response = Histogram((100, 500))
    counted.first_response.observe(7, "a" * 32)
    counted.succeeded(1000, 2000, 3000, 4000, 5000)
    counted.executed(3, 1, 2, 3)
    models = [ModelStatistics("m", "1", counted, {"team": "a"}), ModelStatistics("n", "1", counted)]
    gauges = [Gauge("vllm:num_requests_running", "m", "1", 2), Gauge("e_total", "m", "1", 2)]
    page = MetricsPage(
        lambda: models,
        lambda: gauges,
        MachineUsage(),
        latencies=Measurement(histogram_latencies=True, summary_latencies=True),
    )
    plain = {family.name for family in page.families() if list(family.series)}
    metrics = parsed(text_of(*page.families()))
    assert {name.removesuffix("_total") for name in plain} == metrics.keys()
    assert "penstock_queue_duration_seconds" in metrics


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("application/openmetrics-text", True),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", True),
        # Prometheus 2.42
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
            "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            True,
        ),
        # Prometheus 3, of which the better version is unknown here
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
            "application/openmetrics-text;version=0.0.1;q=0.5,"
            "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*;q=0.2",
            True,
        ),
        ("APPLICATION/OpenMetrics-Text", True),
        ("text/plain, application/openmetrics-text;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=much", False),
        ("application/openmetrics-text;version=2.0.0", False),
        ("text/html", False),
        ("*/*", False),
        ("", False),
        (";;q,=,", False),
    ],
)
def test_who_names_openmetrics_gets_it(accept: str, wanted: bool) -> None:
    assert prefers_openmetrics(accept) is wanted
