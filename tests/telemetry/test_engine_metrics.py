"""Metrics that backends report about their engines."""

from __future__ import annotations

import pytest

from penstock.metrics.exposition import render
from penstock.metrics.histogram import Histogram
from penstock.models.serving.answers import EngineHistogram, Gauge, is_alike
from penstock.telemetry.families import engine_families


def _histogram(*numbers: float) -> Histogram:
    histogram = Histogram((0.1,))
    for number in numbers:
        histogram.observe(number)
    return histogram


def test_histograms_stand_behind_the_numbers() -> None:
    gauges = [Gauge("penstock_llm_waiting_requests", "m", "1", 2)]
    name = "penstock_llm_queue_seconds"
    histograms = [EngineHistogram(name, "m", "1", _histogram(0.05, 2.0))]
    assert render(engine_families(gauges, histograms)).splitlines() == [
        "# HELP penstock_llm_waiting_requests Sequences that wait for a place in the engine",
        "# TYPE penstock_llm_waiting_requests gauge",
        'penstock_llm_waiting_requests{model="m",version="1"} 2',
        "# HELP penstock_llm_queue_seconds"
        " Time that requests waited, for their tenant's turn and their place in the engine",
        "# TYPE penstock_llm_queue_seconds histogram",
        'penstock_llm_queue_seconds_bucket{model="m",version="1",le="0.1"} 1',
        'penstock_llm_queue_seconds_bucket{model="m",version="1",le="+Inf"} 2',
        'penstock_llm_queue_seconds_sum{model="m",version="1"} 2.05',
        'penstock_llm_queue_seconds_count{model="m",version="1"} 2',
    ]


def test_what_is_a_number_is_no_histogram() -> None:
    gauges = [Gauge("x", "m", "1", 2)]
    text = render(engine_families(gauges, [EngineHistogram("x", "n", "1", _histogram())]))
    assert text.count("# TYPE x") == 1


def test_a_name_may_have_labels() -> None:
    gauges = [
        Gauge('jobs{kind="a,b",place="the \\"queue\\""}', "m", "1", 2),
        Gauge('jobs{kind="short"}', "m", "1", 3),
    ]
    assert render(engine_families(gauges)).splitlines()[1:] == [
        "# TYPE jobs gauge",
        'jobs{kind="a,b",place="the \\"queue\\"",model="m",version="1"} 2',
        'jobs{kind="short",model="m",version="1"} 3',
    ]


def test_histograms_may_have_labels() -> None:
    histograms = [EngineHistogram(f'x{{kind="{kind}"}}', "m", "1", _histogram(1)) for kind in "ab"]
    lines = render(engine_families([], histograms)).splitlines()
    assert lines[2] == 'x_bucket{kind="a",model="m",version="1",le="0.1"} 0'
    assert lines[-1] == 'x_count{kind="b",model="m",version="1"} 1'
    assert len(lines) == 2 + 2 * 4


@pytest.mark.parametrize(
    ("name", "alike"),
    [
        ("x_usage", True),
        ('x_usage{kind="used"}', True),
        ('x_info{blocks="7"}', True),
        ('x{kind="fraction"}', True),
        ('x{kind="tokens_per"}', True),
        ('x{kind="used"}', False),
        ("x_total", False),
    ],
)
def test_shares_are_not_added_up(name: str, alike: bool) -> None:
    assert is_alike(name) is alike


def test_families_stand_under_vllms_names_too_if_asked() -> None:
    gauges = [
        Gauge("penstock_llm_waiting_requests", "m", "1", 2),
        Gauge('penstock_llm_lora_requests_info{max_lora="4"}', "m", "1", 7),
        Gauge("vllm:num_requests_running", "n", "1", 5),
        Gauge("penstock_llm_running_requests", "m", "1", 3),
    ]
    lines = render(engine_families(gauges, vllm_names=True)).splitlines()
    assert [line for line in lines if line.startswith("vllm:")] == [
        'vllm:num_requests_running{model="n",version="1"} 5',  # an engine's own name is its own
        'vllm:num_requests_waiting{model="m",version="1"} 2',
        'vllm:lora_requests_info{max_lora="4",model="m",version="1"} 7',
    ]
    assert "vllm:num_requests_waiting" not in render(engine_families(gauges))


def test_whatever_a_backend_names_its_numbers_the_page_is_one_of_prometheus() -> None:
    gauges = [
        Gauge("1 second", "m", "1", 1),
        Gauge("", "m", "1", 2),
        Gauge('x{model="y",é="z",a="1",a="2"}', "m", "1", 3),
    ]
    lines = render(engine_families(gauges)).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        '_1_second{model="m",version="1"} 1',
        '_{model="m",version="1"} 2',
        'x{a="2",model="m",version="1"} 3',
    ]
