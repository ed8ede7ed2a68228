"""Metrics pages as values."""

from __future__ import annotations

import pytest

from harness import recorded
from penstock_client.reading.counters import (
    CacheCounts,
    Durations,
    GpuNumbers,
    ModelKey,
    ProcessKey,
    ProcessNumbers,
)
from penstock_client.reading.metrics_page import MetricsPage, read_page

KEY = ModelKey("m", "1")


def _page(*lines: str, labels: str = 'model="m",version="1"') -> MetricsPage:
    """The page of `name[,label] value` lines, with the model's labels added."""
    parts = (line.rpartition(" ") for line in lines)
    named = ((*head.partition(","), value) for head, _, value in parts)
    return read_page("\n".join(f"{n}{{{labels}{c}{more}}} {v}" for n, c, more, v in named))


def test_counters_of_a_model_are_read() -> None:
    counters = _page(
        "nv_inference_request_success 7",
        "nv_inference_count 9",
        "nv_inference_exec_count 3",
        "nv_inference_request_duration_us 2500000",
        "nv_inference_queue_duration_us 1000000",
        'nv_inference_request_failure,reason="BACKEND" 2',
        'nv_inference_request_failure,reason="CANCELED" 1',
        'penstock_cancelled_total,phase="queued" 1',
        "nv_inference_pending_request_count 4",
        "penstock_in_flight_requests 6",
    ).models[KEY]
    assert (counters.success, counters.inferences, counters.executions) == (7, 9, 3)
    assert counters.durations == Durations(request=2.5, queue=1.0)
    assert counters.failures == {"BACKEND": 2, "CANCELED": 1}
    assert counters.cancelled == {"queued": 1}
    assert (counters.pending, counters.in_flight) == (4, 6)


def test_what_the_page_does_not_tell_is_unknown() -> None:
    counters = _page("nv_inference_request_success 7").models[KEY]
    assert (counters.durations, counters.cache) == (None, None)
    assert (counters.pending, counters.in_flight) == (None, None)


def test_counters_of_several_gpus_are_added_up() -> None:
    page = _page(
        'nv_inference_request_success,gpu_uuid="a" 7', 'nv_inference_request_success,gpu_uuid="b" 5'
    )
    assert page.models[KEY].success == 12


def test_tags_of_a_model_do_not_matter() -> None:
    page = _page("vllm:generation_tokens_total 8", labels='_team="x",model="m",version="1"')
    assert page.models[KEY].engine == {"vllm:generation_tokens_total": 8}


def test_only_what_the_engine_reports_is_the_engines() -> None:
    counters = _page(
        "nv_inference_count 1",
        "penstock_in_flight_requests 1",
        'penstock_batch_size_bucket,le="1" 2',
        'penstock_batch_size_bucket,le="+Inf" 3',
        "penstock_batch_size_sum 4",
        "penstock_batch_size_count 3",
        'made_by_the_model,device="0" 1',
        "penstock_llm_running_requests 5",
    ).models[KEY]
    assert counters.engine == {"penstock_llm_running_requests": 5}
    assert counters.histograms == {"penstock_batch_size": {1: 2, float("inf"): 3}}


def test_summaries_are_quantiles() -> None:
    counters = _page(
        'nv_inference_request_summary_us,quantile="0.95" 120',
        "nv_inference_request_summary_us_count 3",
        "nv_inference_request_summary_us_sum 300",
    ).models[KEY]
    assert counters.quantiles == {"nv_inference_request_summary_us": {0.95: 120}}
    assert counters.engine == {}


def test_hits_of_the_cache_are_read() -> None:
    page = _page("nv_cache_num_hits_per_model 3", "nv_cache_num_misses_per_model 1")
    assert page.models[KEY].cache == CacheCounts(3, 1)


def test_model_processes_are_read() -> None:
    labels = 'model_instance="m_0",model="m",version="1"'
    up = "penstock_model_process_up 1"
    page = _page(
        up,
        "penstock_model_process_pid 42",
        "penstock_model_process_resident_memory_bytes 4096",
        "penstock_model_process_restarts_total 2",
        labels=labels,
    )
    key = ProcessKey("m", "1", "m_0")
    assert page.processes == {key: ProcessNumbers(True, 42, 4096, 2)}
    down = _page("penstock_model_process_up 0", labels=labels)
    assert down.processes == {key: ProcessNumbers(False, None, None, 0)}
    assert down.models == {}


def test_the_machine_and_its_gpus_are_read() -> None:
    page = read_page(
        "nv_cpu_utilization 0.5\nnv_cpu_memory_used_bytes 1\nnv_cpu_memory_total_bytes 2\n"
        'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.25\nnv_gpu_power_usage{gpu_uuid="GPU-1"} 80\n'
    )
    assert (page.machine.cpu, page.machine.memory_used, page.machine.memory_total) == (0.5, 1, 2)
    assert page.machine.gpus == (GpuNumbers("GPU-1", 0.25, None, None, 80),)


@recorded.needs_answers
def test_tritons_page_is_read() -> None:
    page = read_page(recorded.log("metrics_after.txt"))
    simple = page.models[ModelKey("simple", "1")]
    assert (simple.success, simple.inferences, simple.executions) == (4, 7, 4)
    assert simple.durations is not None
    assert simple.durations.request == pytest.approx(0.0228, rel=0.2)
    assert set(simple.failures) == {"REJECTED", "CANCELED", "BACKEND", "OTHER"}
    assert page.models[ModelKey("simple_versions", "3")].success == 0
