"""Metrics of a text-generation engine, under the same names for every engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class EngineStatistics:
    """Gauges of an engine's load, and counters since its start; `cache_usage` is 0 to 1."""

    running: int = 0
    waiting: int = 0
    cache_usage: float = 0.0
    requests: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0

    def metrics(self) -> Mapping[str, float]:
        """The values by metric name."""
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
