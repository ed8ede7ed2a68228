"""What the engine says of itself at each of its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class EngineStatistics:
    """The engine's latest numbers; counters since it started."""

    running: int = 0
    waiting: int = 0
    cache_usage: float = 0.0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    requests: int = 0
    cancelled: int = 0
    failed: int = 0

    def metrics(self) -> Mapping[str, float]:
        """By metric name; the same names as those of the other engine."""
        return {
            "penstock_llm_running_requests": self.running,
            "penstock_llm_waiting_requests": self.waiting,
            "penstock_llm_kv_cache_usage": self.cache_usage,
            "penstock_llm_requests_total": self.requests,
            "penstock_llm_cancelled_requests_total": self.cancelled,
            "penstock_llm_failed_requests_total": self.failed,
            "penstock_llm_prompt_tokens_total": self.prompt_tokens,
            "penstock_llm_generation_tokens_total": self.generation_tokens,
        }

    def record(self, scheduler: Any, iteration: Any) -> None:
        """Take over what vLLM reports of one step; either part may be missing."""
        if scheduler is not None:
            self.running = scheduler.num_running_reqs
            self.waiting = scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs
            self.cache_usage = scheduler.kv_cache_usage
        if iteration is not None:
            self.prompt_tokens += iteration.num_prompt_tokens
            self.generation_tokens += iteration.num_generation_tokens


def logger_factory(statistics: EngineStatistics) -> Callable[[Any, int], Any]:
    """A factory of vLLM's stat loggers that writes into `statistics`."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class Recorder(StatLoggerBase):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            pass

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
