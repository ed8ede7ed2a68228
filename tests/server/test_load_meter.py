"""Load reports for load balancers."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from penstock.inflight.statistics import Duration, Statistics
from penstock.metrics.exposition import Family, MetricKind, Series
from penstock.models.serving.answers import Gauge, ModelStatistics
from penstock.server.load_meter import LoadMeter, LoadReport


class _Machine:
    def utilization(self) -> float:
        return 0.25

    def memory(self) -> tuple[int, int]:
        return 2, 8


class _Metered:
    """A meter with counters, and a clock, that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.statistics = Statistics()
        self.gauges: list[Gauge] = []
        self.families: list[Family] = []
        self.meter = LoadMeter(self._snapshot, lambda: self.gauges, lambda: self.now)
        self.meter.plug_in(_Machine(), lambda: self.families)

    def _snapshot(self) -> Iterable[ModelStatistics]:
        return [ModelStatistics("m", "1", self.statistics)]

    def later(self, seconds: float, succeeded: int = 0, failed: int = 0) -> LoadReport:
        self.now += seconds
        self.statistics.success.count += succeeded
        self.statistics.fail.count += failed
        return self.meter.report()


@pytest.fixture
def metered() -> _Metered:
    return _Metered()


def blocks(**values: float) -> Family:
    """TensorRT-LLM's metric of the blocks of its KV cache."""
    series = [Series((("kv_cache_block_type", name),), value) for name, value in values.items()]
    return Family("nv_trt_llm_kv_cache_block_metrics", "", MetricKind.GAUGE, series)


def test_the_machine_is_reported(metered: _Metered) -> None:
    report = metered.later(1.0)
    assert (report.cpu_utilization, report.mem_utilization) == (0.25, 0.25)


def test_rates_are_those_since_the_report_before(metered: _Metered) -> None:
    report = metered.later(2.0, succeeded=6, failed=2)
    assert (report.rps_fractional, report.eps) == (4.0, 1.0)
    report = metered.later(0.5, succeeded=100)  # too short for a rate
    assert (report.rps_fractional, report.eps) == (4.0, 1.0)
    report = metered.later(1.5)
    assert (report.rps_fractional, report.eps) == (50.0, 0.0)


def test_rates_do_not_go_below_zero_when_a_model_goes(metered: _Metered) -> None:
    metered.later(1.0, succeeded=6, failed=2)
    metered.statistics.success = Duration()
    metered.statistics.fail = Duration()
    report = metered.later(1.0)
    assert (report.rps_fractional, report.eps) == (0.0, 0.0)


def test_reports_within_a_tenth_of_a_second_are_one(metered: _Metered) -> None:
    report = metered.later(1.0)
    assert metered.later(0.09) is report
    assert metered.later(0.02) is not report


def test_queues_are_named_metrics(metered: _Metered) -> None:
    metered.statistics.pending = 3
    metered.gauges = [
        Gauge("penstock_llm_running_requests", "a", "1", 2),
        Gauge("penstock_llm_running_requests", "b", "1", 3),
        Gauge("penstock_llm_waiting_requests", "a", "1", 7),
        Gauge("penstock_llm_kv_cache_usage", "a", "1", 0.25),
        Gauge("penstock_llm_kv_cache_usage", "b", "1", 0.75),
    ]
    assert metered.later(1.0).named_metrics == {
        "queue_depth": 3,
        "llm_running_requests": 5,
        "llm_waiting_requests": 7,
        "kv_cache_utilization": 0.75,
    }


@pytest.mark.contract("HG-14")
@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("json", 'JSON {"named_metrics":{"kv_cache_utilization":0.25,"max_token_capacity":6400}}'),
        (
            "text",
            "TEXT named_metrics.kv_cache_utilization=0.250000,"
            " named_metrics.max_token_capacity=6400",
        ),
        ("JSON", None),
        ("bin", None),
        ("", None),
    ],
)
def test_kv_cache_is_written_as_by_triton(metered: _Metered, form: str, text: str | None) -> None:
    metered.families = [blocks(fraction=0.5, tokens_per=64, used=25, free=75, max=100)]
    assert metered.later(1.0).kv_cache_text(form) == text


@pytest.mark.contract("HG-14")
def test_kv_cache_of_an_engine_is_written_alike(metered: _Metered) -> None:
    metered.gauges = [
        Gauge(f'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{name}"}}', "m", "1", value)
        for name, value in {"tokens_per": 64, "used": 25, "max": 100}.items()
    ]
    assert metered.later(1.0).kv_cache == {
        "kv_cache_utilization": 0.25,
        "max_token_capacity": 6400,
    }


@pytest.mark.contract("HG-14")
@pytest.mark.parametrize(
    "found", [{}, {"tokens_per": 64, "used": 1}, {"tokens_per": 64, "used": -1, "max": 1}]
)
def test_without_all_of_the_metric_there_is_no_kv_cache(
    metered: _Metered, found: dict[str, float]
) -> None:
    metered.families = [blocks(**found)]
    assert metered.later(1.0).kv_cache_text("json") is None


def test_no_blocks_are_no_use_of_them(metered: _Metered) -> None:
    metered.families = [blocks(tokens_per=64, used=0, max=0)]
    assert metered.later(1.0).kv_cache == {"kv_cache_utilization": 0.0, "max_token_capacity": 0}


def test_whole_reports_are_written_in_both_forms() -> None:
    report = LoadReport(0.5, 0.25, 10.0, 1.0, {"kv_cache_utilization": 0.5}, {"queue_depth": 3})
    json_text = report.text("json") or ""
    assert json_text.startswith("JSON ")
    assert json.loads(json_text.removeprefix("JSON ")) == {
        "cpu_utilization": 0.5,
        "mem_utilization": 0.25,
        "rps_fractional": 10.0,
        "eps": 1.0,
        "named_metrics": {"kv_cache_utilization": 0.5, "queue_depth": 3},
    }
    assert report.text("text") == (
        "TEXT cpu_utilization=0.500000, mem_utilization=0.250000, rps_fractional=10.000000,"
        " eps=1.000000, named_metrics.kv_cache_utilization=0.500000, named_metrics.queue_depth=3"
    )
    assert report.text("html") is None


def test_a_meter_without_a_machine_reports_the_rest() -> None:
    report = LoadMeter(tuple, tuple).report()
    assert (report.cpu_utilization, report.mem_utilization) == (0.0, 0.0)
