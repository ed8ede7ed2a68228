"""The text of the metrics page."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.metrics.exposition import Family, MetricKind, Series, render


def gauge(*series: Series, name: str = "g", description: str = "a gauge") -> Family:
    return Family(name, description, MetricKind.GAUGE, series)


def test_lines_are_those_of_triton() -> None:
    labels = (("model", "custom_metrics"),)
    counter = Family("peer_requests", "requests seen", MetricKind.COUNTER, (Series(labels, 1.0),))
    assert render([counter]) == (
        "# HELP peer_requests requests seen\n"
        "# TYPE peer_requests counter\n"
        'peer_requests{model="custom_metrics"} 1\n'
    )


def test_histogram_has_buckets_sum_and_count() -> None:
    series = Series((("x", "1"),), 55.65, ((0.1, 2), (1.0, 3), (math.inf, 5)))
    assert render([Family("h", "", MetricKind.HISTOGRAM, (series,))]).splitlines()[2:] == [
        'h_bucket{x="1",le="0.1"} 2',
        'h_bucket{x="1",le="1"} 3',
        'h_bucket{x="1",le="+Inf"} 5',
        'h_sum{x="1"} 55.65',
        'h_count{x="1"} 5',
    ]


def test_summary_has_count_sum_and_quantiles() -> None:
    series = Series((("x", "1"),), 7, quantiles=((0.5, 3), (0.99, math.nan)), count=2)
    assert render([Family("s", "", MetricKind.SUMMARY, (series,))]).splitlines()[1:] == [
        "# TYPE s summary",
        's_count{x="1"} 2',
        's_sum{x="1"} 7',
        's{x="1",quantile="0.5"} 3',
        's{x="1",quantile="0.99"} NaN',
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.5, "1.5"),
        (1e15, "1000000000000000"),
        (1e20, "1e+20"),
        (1e-7, "1e-07"),
        (123456789.123, "123456789.123"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_short_and_exact(value: float, text: str) -> None:
    assert render([gauge(Series((), value))]).splitlines()[-1] == f"g {text}"


def test_nothing_can_start_a_line_of_its_own() -> None:
    family = gauge(Series((("l", 'a"b\\c\nd'),), 1.0), description="two\nlines \\")
    assert render([family]).splitlines() == [
        r"# HELP g two\nlines " + "\\\\",
        "# TYPE g gauge",
        r'g{l="a\"b\\c\nd"} 1',
    ]


def test_prometheus_reads_it_back() -> None:
    series = Series((("a", 'x"\n\\'),), 3.5, ((1.0, 1), (math.inf, 2)))
    text = render([Family("h", "Help", MetricKind.HISTOGRAM, (series,)), gauge(Series((), 2.0))])
    histogram, read_gauge = text_string_to_metric_families(text)
    assert (histogram.type, histogram.documentation) == ("histogram", "Help")
    assert [(s.name, s.value) for s in histogram.samples] == [
        ("h_bucket", 1.0),
        ("h_bucket", 2.0),
        ("h_sum", 3.5),
        ("h_count", 2.0),
    ]
    assert histogram.samples[-1].labels == {"a": 'x"\n\\'}
    assert read_gauge.samples[0].value == 2.0
