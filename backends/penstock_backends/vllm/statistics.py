"""Metrics that vLLM's engine reports at each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock_backends.language_model import EngineStatistics


class VllmStatistics(EngineStatistics):
    """Statistics of a vLLM engine, updated by `record`."""

    def record(self, scheduler: Any, iteration: Any) -> None:
        """Record vLLM's report of one step; either part may be `None`."""
        if scheduler is not None:
            self.running = scheduler.num_running_reqs
            self.waiting = scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs
            self.cache_usage = scheduler.kv_cache_usage
        if iteration is not None:
            self.prompt_tokens += iteration.num_prompt_tokens
            self.generation_tokens += iteration.num_generation_tokens


def logger_factory(statistics: VllmStatistics) -> Callable[[Any, int], Any]:
    """A factory of vLLM stat loggers that write to `statistics`."""
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
