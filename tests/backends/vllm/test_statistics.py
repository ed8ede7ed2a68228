"""Metrics from what vLLM's engine reports at each step."""

from __future__ import annotations

from types import SimpleNamespace

from penstock_backends.vllm.statistics import VllmStatistics


def test_reports_of_steps_add_up() -> None:
    statistics = VllmStatistics()
    scheduler = SimpleNamespace(
        num_running_reqs=3, num_waiting_reqs=1, num_skipped_waiting_reqs=1, kv_cache_usage=0.5
    )
    step = SimpleNamespace(
        num_prompt_tokens=7,
        num_generation_tokens=3,
        num_preempted_reqs=2,
        time_to_first_tokens_iter=[],
        inter_token_latencies_iter=[],
        finished_requests=[],
    )
    statistics.record(scheduler, step)
    statistics.record(None, step)
    statistics.record(scheduler, None)
    metrics = statistics.metrics()
    assert metrics["penstock_llm_running_requests"] == 3
    assert metrics["penstock_llm_waiting_requests"] == 2
    assert metrics["penstock_llm_kv_cache_usage"] == 0.5
    assert metrics["penstock_llm_prompt_tokens_total"] == 14
    assert metrics["penstock_llm_generation_tokens_total"] == 6
    assert metrics["penstock_llm_preemptions_total"] == 4
