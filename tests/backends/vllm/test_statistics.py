"""Metrics from what vLLM's engine reports at each step."""

from __future__ import annotations

from types import SimpleNamespace

from penstock_backends.vllm.late_outputs import count_late_outputs
from penstock_backends.vllm.statistics import VllmStatistics


def test_reports_of_steps_add_up() -> None:
    statistics = VllmStatistics()
    scheduler = SimpleNamespace(
        num_running_reqs=3,
        num_waiting_reqs=1,
        num_skipped_waiting_reqs=1,
        kv_cache_usage=0.5,
        spec_decoding_stats=SimpleNamespace(num_draft_tokens=6, num_accepted_tokens=4),
    )
    step = SimpleNamespace(
        num_prompt_tokens=7,
        prompt_token_stats=SimpleNamespace(cached_tokens=5),
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
    assert metrics["penstock_llm_prefill_tokens_total"] == 14
    assert metrics["penstock_llm_generation_tokens_total"] == 6
    assert metrics["penstock_llm_preemptions_total"] == 4
    assert metrics["penstock_llm_cached_tokens_total"] == 10
    assert metrics["penstock_llm_spec_draft_tokens_total"] == 12
    assert metrics["penstock_llm_spec_accepted_tokens_total"] == 8


def test_adapters_are_told_in_labels() -> None:
    statistics = VllmStatistics(most_adapters=4)
    scheduler = SimpleNamespace(
        num_running_reqs=3,
        num_waiting_reqs=0,
        num_skipped_waiting_reqs=0,
        kv_cache_usage=0.5,
        spec_decoding_stats=None,
        running_lora_adapters={"loud": 2, "low": 1},
        waiting_lora_adapters={},
    )
    statistics.record(scheduler, None)
    (name,) = [name for name in statistics.metrics() if "lora" in name]
    assert name == (
        'penstock_llm_lora_requests_info{max_lora="4",running_lora_adapters="loud,low"}'
    )


def test_outputs_of_forgotten_requests_are_waste() -> None:
    """Those that vLLM knows are counted by its own statistics."""
    statistics = VllmStatistics()
    passed: list[object] = []
    processor = SimpleNamespace(request_states={"1": object()}, process_outputs=passed.append)
    count_late_outputs(SimpleNamespace(output_processor=processor), statistics)
    outputs = [SimpleNamespace(request_id=n, new_token_ids=[7, 8]) for n in ("1", "2")]
    processor.process_outputs(outputs)
    assert statistics.metrics()["penstock_llm_wasted_tokens_total"] == 2
    assert passed == [outputs]
