"""Metrics of a text-generation engine, under the names that `LANGUAGE_MODEL_METRICS` declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.backend import LANGUAGE_MODEL_METRICS, Histogram

_PREFIX = "penstock_llm_"


def _histograms() -> dict[str, Histogram]:
    declared = LANGUAGE_MODEL_METRICS.values()
    return {metric.name: Histogram(metric.bounds) for metric in declared if metric.bounds}


@dataclass(slots=True)
class EngineStatistics:
    """Gauges of an engine's load, and counters and histograms since its start.

    `cache_usage` is 0 to 1.
    """

    running: int = 0
    waiting: int = 0
    cache_usage: float = 0.0
    requests: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    histograms: dict[str, Histogram] = field(default_factory=_histograms)

    def observe(self, name: str, number: float, trace_id: str = "") -> None:
        """Count an observation in the histogram of this name, which is without its prefix."""
        self.histograms[_PREFIX + name].observe(number, trace_id)

    def forget_observations(self) -> None:
        """Begin the histograms anew, after a warm-up."""
        self.histograms = _histograms()

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
