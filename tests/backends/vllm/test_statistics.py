"""Metrics from what vLLM's engine reports at each step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock_backends.vllm.internals import watch_outputs
from penstock_backends.vllm.output_owners import OWNER, Owner
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


def load(running: int, waiting: int, usage: float, *adapters: str) -> Any:
    return SimpleNamespace(
        num_running_reqs=running,
        num_waiting_reqs=waiting,
        num_skipped_waiting_reqs=0,
        kv_cache_usage=usage,
        spec_decoding_stats=None,
        running_lora_adapters=dict.fromkeys(adapters, 1),
        waiting_lora_adapters={},
    )


def test_loads_of_several_engines_are_those_of_all() -> None:
    """With data parallelism: requests are added up, use of the caches is a mean."""
    statistics = VllmStatistics(most_adapters=4, places={0: 8, 1: 8})
    statistics.record(load(3, 1, 0.5, "loud"), None, 0)
    statistics.record(load(8, 9, 1.0), None, 1)
    statistics.record(load(2, 0, 0.25, "loud", "deep"), None, 0)
    metrics = statistics.metrics()
    assert metrics["penstock_llm_running_requests"] == 10
    assert metrics["penstock_llm_waiting_requests"] == 9
    assert metrics["penstock_llm_kv_cache_usage"] == 0.625
    assert metrics["penstock_llm_max_running_requests"] == 16
    statistics.record(load(0, 0, 0.0, "low"), None, 1)
    (name,) = [name for name in statistics.metrics() if "lora" in name]
    assert 'running_lora_adapters="deep,loud,low"' in name


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
    statistics, processor = VllmStatistics(), Processor()
    watch_outputs(SimpleNamespace(output_processor=processor), statistics)
    processor.add_request(SimpleNamespace(request_id="1-a"))
    outputs = [SimpleNamespace(request_id=n, new_token_ids=[7, 8]) for n in ("1-a", "2-a")]
    processor.process_outputs(outputs)
    assert statistics.metrics()["penstock_llm_wasted_tokens_total"] == 2
    assert processor.passed == [outputs]


class Processor:
    """vLLM's output processor: a request has its first output, then others."""

    log_stats = True

    def __init__(self) -> None:
        self.request_states: dict[str, Any] = {}
        self.passed: list[Any] = []

    def add_request(self, request: Any) -> None:
        external = request.request_id.partition("-")[0]
        self.request_states[request.request_id] = SimpleNamespace(
            is_prefilling=True, external_req_id=external
        )

    def process_outputs(self, outputs: Any) -> None:
        self.passed.append(outputs)
        for output in outputs:
            if output.request_id in self.request_states:
                self.request_states[output.request_id].is_prefilling = False


def step(first: list[float], later: list[float], *ended: Any) -> Any:
    """vLLM's report of a step with these times."""
    return SimpleNamespace(
        num_prompt_tokens=0,
        prompt_token_stats=SimpleNamespace(cached_tokens=0),
        num_generation_tokens=0,
        num_preempted_reqs=0,
        time_to_first_tokens_iter=first,
        inter_token_latencies_iter=later,
        finished_requests=list(ended),
    )


def test_times_of_a_step_are_those_of_the_tenants_whose_requests_are_in_it() -> None:
    """Two requests of one tenant, one of another that waited for its turn; one is not known."""
    statistics, processor = VllmStatistics(), Processor()
    watch_outputs(SimpleNamespace(output_processor=processor), statistics)
    for number, tenant in (("1-a", "red"), ("2-a", "blue"), ("3-a", "red")):
        token = OWNER.set(Owner(tenant, waited=10.0 if tenant == "blue" else 0.0))
        processor.add_request(SimpleNamespace(request_id=number))
        OWNER.reset(token)
    for numbers in (("1-a", "2-a"), ("2-a", "gone", "3-a", "1-a")):
        processor.process_outputs(
            [SimpleNamespace(request_id=number, new_token_ids=[7]) for number in numbers]
        )
        if len(numbers) == 2:
            statistics.record(None, step([0.1, 0.2], []))
    ended = SimpleNamespace(
        request_id="2",
        finish_reason=SimpleNamespace(name="STOP"),
        queued_time=0.5,
        inference_time=1.0,
        num_prompt_tokens=5,
        num_generation_tokens=1,
    )
    statistics.record(None, step([0.4], [0.01, 0.02], ended))
    sums = {
        name.removeprefix("penstock_llm_"): round(one.total, 3)
        for name, one in statistics.distributions().items()
        if one.total
    }
    assert sums == {
        'time_to_first_token_seconds{tenant="red"}': 0.5,
        'time_to_first_token_seconds{tenant="blue"}': 10.2,
        'inter_token_seconds{tenant="blue"}': 0.01,
        'inter_token_seconds{tenant="red"}': 0.02,
        'queue_seconds{tenant="blue"}': 10.5,
        'request_seconds{tenant="blue"}': 11.5,
        'prompt_tokens{tenant="blue"}': 5,
        'generated_tokens{tenant="blue"}': 1,
    }
