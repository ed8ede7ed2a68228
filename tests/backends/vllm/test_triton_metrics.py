"""Metrics under the names of Triton's vLLM backend."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.config import ModelConfig, Parameter
from penstock.metrics.exposition import render
from penstock.metrics.histogram import Histogram
from penstock.metrics.language_model import TRITON_VLLM_METRICS
from penstock.models.serving.answers import EngineHistogram, Gauge
from penstock.telemetry.families import engine_families
from penstock_backends.vllm.statistics import VllmStatistics
from penstock_backends.vllm.triton_metrics import lengths, wants_triton_metrics

_REQUEST = SimpleNamespace(
    finish_reason=SimpleNamespace(name="STOP"),
    request_id="1",
    queued_time=0.5,
    inference_time=1.5,
    mean_time_per_output_token=0.375,
    e2e_latency=2.0,
    num_prompt_tokens=7,
    num_generation_tokens=3,
)
_STEP: Any = SimpleNamespace(
    num_prompt_tokens=7,
    prompt_token_stats=SimpleNamespace(cached_tokens=0),
    num_generation_tokens=3,
    num_preempted_reqs=0,
    time_to_first_tokens_iter=[0.25],
    inter_token_latencies_iter=[0.5, 0.25],
    finished_requests=[_REQUEST],
    n_params_iter=[1],
)


def reporting() -> VllmStatistics:
    statistics = VllmStatistics(longest=100)
    statistics.report_as_triton()
    statistics.record(None, _STEP)
    return statistics


@pytest.mark.contract("VL-20", "ME-32", "ME-38")
def test_all_of_tritons_are_reported() -> None:
    statistics = reporting()
    numbers, histograms = statistics.metrics(), statistics.distributions()
    assert TRITON_VLLM_METRICS.keys() <= {*numbers, *histograms}
    assert numbers["vllm:prompt_tokens_total"] == 7
    assert numbers["vllm:generation_tokens_total"] == 3
    sums = {n: h.total for n, h in histograms.items() if n.startswith("vllm:")}
    assert sums == {
        "vllm:time_to_first_token_seconds": 0.25,
        "vllm:time_per_output_token_seconds": 0.75,
        "vllm:e2e_request_latency_seconds": 2.0,
        "vllm:request_prompt_tokens": 7,
        "vllm:request_generation_tokens": 3,
        "vllm:request_params_n": 1,
    }


@pytest.mark.contract("VL-20")
def test_they_have_tritons_help_and_labels() -> None:
    counter = Gauge("vllm:generation_tokens_total", "m", "1", 3)
    name = "vllm:request_params_n"
    histogram = EngineHistogram(name, "m", "1", Histogram(TRITON_VLLM_METRICS[name].bounds))
    text = render(engine_families([counter], [histogram]))
    assert (
        "# HELP vllm:generation_tokens_total Number of generation tokens processed.\n"
        "# TYPE vllm:generation_tokens_total counter\n"
        'vllm:generation_tokens_total{model="m",version="1"} 3\n'
    ) in text
    assert 'vllm:request_params_n_bucket{model="m",version="1",le="20"} 0\n' in text


@pytest.mark.contract("VL-19")
@pytest.mark.parametrize(("value", "wanted"), [("true", True), ("True", True), ("yes", False)])
def test_a_parameter_asks_for_them(value: str, wanted: bool) -> None:
    parameters = {"REPORT_CUSTOM_METRICS": Parameter(value)}
    assert wants_triton_metrics(ModelConfig(name="m", parameters=parameters)) is wanted


@pytest.mark.contract("VL-19")
def test_without_it_there_are_none() -> None:
    assert not wants_triton_metrics(ModelConfig(name="m"))
    statistics = VllmStatistics()
    statistics.record(None, _STEP)
    names = {*statistics.metrics(), *statistics.distributions()}
    assert not [name for name in names if name.startswith("vllm:")]


@pytest.mark.contract("VL-19")
def test_without_the_engines_statistics_there_are_none() -> None:
    """With `disable_log_stats` the engine tells nothing, so they would all be 0."""
    statistics = VllmStatistics()
    statistics.report_as_triton()
    names = {*statistics.metrics(), *statistics.distributions()}
    assert not [name for name in names if name.startswith("vllm:")]


@pytest.mark.parametrize(
    ("longest", "bounds"), [(1, [1]), (4, [1, 2]), (100, [1, 2, 5, 10, 20, 50, 100])]
)
def test_lengths_go_up_to_the_context(longest: int, bounds: list[float]) -> None:
    assert list(lengths(longest)) == bounds
