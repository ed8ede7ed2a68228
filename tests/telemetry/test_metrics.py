"""The text of the metrics page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.recorded import answers, log, needs_answers
from penstock.caching.local import LocalCache
from penstock.inflight.statistics import Duration, FailureReason, Statistics
from penstock.models.serving.answers import Gauge, ModelStatistics
from penstock.system.machine import MachineUsage
from penstock.telemetry.metrics import MetricsPage


def _page(
    models: Iterable[ModelStatistics] = (),
    gauges: Iterable[Gauge] = (),
    machine: MachineUsage | None = None,
    cache: LocalCache | None = None,
) -> str:
    return MetricsPage(lambda: models, lambda: gauges, machine, cache).text()


def _model(name: str = "m", **counted: object) -> ModelStatistics:
    return ModelStatistics(name, "1", Statistics(**counted))  # type: ignore[arg-type]


def _values(page: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What Prometheus makes of a page; its parser gives counters a suffix."""
    return {
        (sample.name.removesuffix("_total"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def _value(page: str, name: str, **labels: str) -> float:
    return _values(page)[name, tuple(sorted(labels.items()))]


_CACHED = _model(
    "a",
    success=Duration(3, 5_999),
    cache_hit=Duration(2, 7_000),
    cache_miss=Duration(1),
    cached=True,
)


@pytest.mark.contract(
    "ME-02",
    "ME-03",
    "ME-05",
    "ME-06",
    "ME-07",
    "ME-08",
    "ME-09",
    "ME-10",
    "ME-11",
    "ME-12",
    "ME-27",
    "ME-36",
)
@needs_answers
@pytest.mark.contract("ME-20")
def test_lines_are_as_recorded() -> None:
    """Names, help, types and order of families and labels are those of the real server."""
    page = _page([_CACHED], machine=MachineUsage(), cache=LocalCache(1000))
    names = set(re.findall(r"^# HELP (nv_\S+)", page, re.MULTILINE))
    page = "\n".join(line for line in page.splitlines() if "penstock_" not in line)
    names_there = names - _NEWER
    assert _header(log("metrics_idle.txt"), names_there) == _header(page, names_there)
    assert names - _NEWER == set(answers("metrics_idle_names.json")) - _NOT_OURS


_NEWER = {"nv_model_load_duration_secs"}
"""What the recorded version did not have yet."""

_NOT_OURS = {"_content_type", "peer_gauge", "peer_requests"}
"""What belongs to a model of the recording."""


def _header(page: str, names: set[str]) -> list[str]:
    """Comments about `names`, and the names and label names of their values, each once."""
    lines: list[str] = []
    for line in page.splitlines():
        shape = line if line.startswith("#") else re.sub(r'"[^"]*"|(?<=[ }])\S+$', "", line)
        if re.split("[ {]", line.removeprefix("# HELP ").removeprefix("# TYPE "))[0] in names:
            lines.append(shape)
    return list(dict.fromkeys(lines))


@pytest.mark.contract("ME-03", "ME-05", "ME-06", "ME-08", "ME-09", "ME-10", "ME-11", "ME-12")
def test_counters_have_the_counted_values() -> None:
    counted = Statistics(
        success=Duration(3, 5_999),
        queue=Duration(3, 1_000),
        compute_input=Duration(3, 2_000),
        compute_infer=Duration(3, 3_000),
        compute_output=Duration(3, 4_000),
        inference_count=12,
        execution_count=2,
        pending=4,
    )
    page = _page([ModelStatistics("m", "2", counted)])
    assert {
        name.removeprefix("nv_inference_"): value
        for (name, labels), value in _values(page).items()
        if labels == (("model", "m"), ("version", "2")) and name.startswith("nv_inference_")
    } == {
        "request_success": 3,
        "count": 12,
        "exec_count": 2,
        "request_duration_us": 5,
        "queue_duration_us": 1,
        "compute_input_duration_us": 2,
        "compute_infer_duration_us": 3,
        "compute_output_duration_us": 4,
        "pending_request_count": 4,
    }


@pytest.mark.contract("ME-04")
def test_every_reason_for_failure_is_there_from_the_start() -> None:
    model = _model()
    model.statistics.failures[FailureReason.REJECTED] += 2
    page = _page([model])
    values = {
        reason: _value(page, "nv_inference_request_failure", model="m", version="1", reason=reason)
        for reason in FailureReason
    }
    assert values == {"REJECTED": 2, "CANCELED": 0, "BACKEND": 0, "OTHER": 0}


@pytest.mark.contract("ME-19")
def test_cache_is_shown_for_models_that_use_one() -> None:
    page = _page([_CACHED, _model("b")])
    assert _value(page, "nv_cache_num_hits_per_model", model="a", version="1") == 2
    assert _value(page, "nv_cache_hit_duration_per_model", model="a", version="1") == 7
    assert 'nv_cache_num_hits_per_model{model="b"' not in page


@pytest.mark.contract("C-31")
def test_tags_of_a_configuration_are_labels_of_all_its_metrics() -> None:
    page = _page([ModelStatistics("m", "1", Statistics(), {"team": "a", "by": "b"})])
    lines = [line for line in page.splitlines() if 'model="m"' in line]
    assert lines
    assert all('{_by="b",_team="a",model="m"' in line for line in lines)


@pytest.mark.contract("M-19", "ME-13")
def test_page_tells_how_long_a_model_took_to_load() -> None:
    page = _page([ModelStatistics("m", "1", Statistics(), load_seconds=1.5)])
    assert _value(page, "nv_model_load_duration_secs", model="m", version="1") == 1.5


@pytest.mark.contract("ME-27")
def test_page_without_models_has_the_pool_of_pinned_memory_only() -> None:
    assert _values(_page()) == {
        ("nv_pinned_memory_pool_total_bytes", ()): 0,
        ("nv_pinned_memory_pool_used_bytes", ()): 0,
    }


def test_gauges_of_engines_keep_their_names() -> None:
    gauges = [
        Gauge("vllm:num_requests_running", "a", "1", 2),
        Gauge("other", "a", "1", 0.25),
        Gauge("vllm:num_requests_running", "b", "3", 5),
        Gauge("no-name", "a", "1", 1),
    ]
    page = _page(gauges=gauges)
    assert _value(page, "vllm:num_requests_running", model="b", version="3") == 5
    assert _value(page, "no_name", model="a", version="1") == 1
    assert page.count("# TYPE vllm:num_requests_running gauge") == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (25_276_510_208, "25276510208"),
        (2.0, "2"),
        (7.62939453125e-06, "7.62939453125e-06"),
        (1e300, "1e+300"),
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
    ],
)
def test_numbers_are_written_as_they_are_read(value: float, text: str) -> None:
    page = _page(gauges=[Gauge("g", "m", "1", value)])
    assert page.endswith(f'g{{model="m",version="1"}} {text}\n')
    assert repr(float(_value(page, "g", model="m", version="1"))) == repr(float(value))


def test_labels_may_hold_anything() -> None:
    name = 'a"b\\c\nd'
    page = _page([_model(name)])
    assert _value(page, "nv_inference_count", model=name, version="1") == 0


@pytest.mark.contract("ME-26")
def test_machine_is_shown(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable: 60 kB\n")
    page = _page(machine=MachineUsage(proc=tmp_path))
    assert _value(page, "nv_cpu_memory_total_bytes") == 102_400
    assert _value(page, "nv_cpu_memory_used_bytes") == 40_960
    assert _value(page, "nv_cpu_utilization") == 0
