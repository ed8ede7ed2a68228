"""Metrics that vLLM's engine reports at each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.backend import Histogram
from penstock_backends.language_model import EngineStatistics
from penstock_backends.vllm.triton_metrics import TritonMetrics

_WHOLE = ("STOP", "LENGTH")
"""Reasons for the end of requests that were neither cancelled nor failed."""


@dataclass(slots=True)
class VllmStatistics(EngineStatistics):
    """Statistics of a vLLM engine, updated by `record`.

    `preemptions` counts the times that a running request lost its KV cache to others. `longest` is
    the engine's context in tokens.
    """

    preemptions: int = 0
    longest: int = 0
    triton: TritonMetrics | None = None

    def report_as_triton(self) -> None:
        """Report under the names of Triton's vLLM backend too, from now on."""
        self.triton = TritonMetrics(self.longest)

    def distributions(self) -> Mapping[str, Histogram]:
        """The histograms by metric name."""
        own = self.histograms
        return own if self.triton is None else {**own, **self.triton.histograms}

    def metrics(self) -> Mapping[str, float]:
        """The values by metric name."""
        common = EngineStatistics.metrics(self)
        own = {**common, "penstock_llm_preemptions_total": self.preemptions}
        return own if self.triton is None else {**own, **self.triton.metrics()}

    def record(self, scheduler: Any, iteration: Any) -> None:
        """Record vLLM's report of one step; either part may be `None`."""
        if scheduler is not None:
            self.running = scheduler.num_running_reqs
            self.waiting = scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs
            self.cache_usage = scheduler.kv_cache_usage
        if iteration is not None:
            self.prompt_tokens += iteration.num_prompt_tokens
            self.generation_tokens += iteration.num_generation_tokens
            self.preemptions += iteration.num_preempted_reqs
            self._observe_times(iteration)
            if self.triton is not None:
                self.triton.record(iteration)

    def _observe_times(self, iteration: Any) -> None:
        for seconds in iteration.time_to_first_tokens_iter:
            self.observe("time_to_first_token_seconds", seconds)
        for seconds in iteration.inter_token_latencies_iter:
            self.observe("inter_token_seconds", seconds)
        for request in iteration.finished_requests:
            if request.finish_reason.name in _WHOLE:
                self.observe("queue_seconds", request.queued_time)
                self.observe("request_seconds", request.e2e_latency)
                self.observe("request_prompt_tokens", request.num_prompt_tokens)
                self.observe("request_generation_tokens", request.num_generation_tokens)


def logger_factory(statistics: VllmStatistics) -> Callable[[Any, int], Any]:
    """A factory of vLLM stat loggers that write to `statistics`."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class Recorder(StatLoggerBase):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            statistics.longest = vllm_config.model_config.max_model_len

        def record(
            self,
            scheduler_stats: Any,
            iteration_stats: Any,
            mm_cache_stats: Any = None,
            engine_idx: int = 0,
        ) -> None:
            statistics.record(scheduler_stats, iteration_stats)

        def log_engine_initialized(self) -> None:
            pass

    return Recorder
