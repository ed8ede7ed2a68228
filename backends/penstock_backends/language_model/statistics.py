"""Metrics of a text-generation engine, under the names that `LANGUAGE_MODEL_METRICS` declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.backend import LANGUAGE_MODEL_METRICS, Histogram, series_name

_PREFIX = "penstock_llm_"

ENGINE_REQUESTS = "engine_requests"
"""Reason of a rejection: the engine's own queue has as many requests as it takes."""
ENGINE_TOKENS = "engine_tokens"
"""Reason of a rejection: the engine's own queue has as many tokens as it takes."""


def _histograms() -> dict[str, Histogram]:
    declared = LANGUAGE_MODEL_METRICS.values()
    return {metric.name: Histogram(metric.bounds) for metric in declared if metric.bounds}


@dataclass(slots=True)
class EngineStatistics:
    """Gauges of an engine's load, and counters and histograms since its start.

    `cache_usage` is 0 to 1. Counters that are `None` are those that the engine does not report.
    `cache_config` describes the KV cache, under vLLM's names. `histograms` are of requests that
    have no tenant, `by_tenant` of all others, by the tenant's label.
    """

    running: int = 0
    waiting: int = 0
    cache_usage: float = 0.0
    requests: int = 0
    cancelled: int = 0
    failed: int = 0
    prefill_tokens: int = 0
    generation_tokens: int = 0
    wasted_tokens: int = 0
    cached_tokens: int | None = None
    preemptions: int | None = None
    spec_draft_tokens: int | None = None
    spec_accepted_tokens: int | None = None
    rejected: dict[str, int] = field(default_factory=lambda: {ENGINE_REQUESTS: 0})
    cache_config: Mapping[str, str] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=_histograms)
    by_tenant: dict[str, dict[str, Histogram]] = field(default_factory=dict)

    def observe(self, name: str, number: float, trace_id: str = "", tenant: str = "") -> None:
        """Count an observation in the histogram of this name, which is without its prefix."""
        own = self.histograms if not tenant else self._of_tenant(tenant)
        own[_PREFIX + name].observe(number, trace_id)

    def _of_tenant(self, tenant: str) -> dict[str, Histogram]:
        """The tenant's histograms; the server keeps the number of labels small."""
        if (own := self.by_tenant.get(tenant)) is None:
            own = self.by_tenant[tenant] = _histograms()
        return own

    def distributions(self) -> Mapping[str, Histogram]:
        """The histograms by series; those without a tenant are always there."""
        return self.histograms | {
            series_name(name, tenant=tenant): histogram
            for tenant, own in self.by_tenant.items()
            for name, histogram in own.items()
        }

    def reject(self, reason: str) -> None:
        """Count a request that was refused before it was begun."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1

    def forget_own_request(self) -> None:
        """Begin counters and histograms anew, after the one request of a warm-up or a probe."""
        self.requests -= 1
        self.prefill_tokens = self.generation_tokens = 0
        if self.cached_tokens is not None:
            self.cached_tokens = 0
        self.histograms = _histograms()
        self.by_tenant = {}

    def metrics(self) -> Mapping[str, float]:
        """The values by metric name."""
        return {
            "penstock_llm_running_requests": self.running,
            "penstock_llm_waiting_requests": self.waiting,
            "penstock_llm_kv_cache_usage": self.cache_usage,
            "penstock_llm_requests_total": self.requests,
            "penstock_llm_cancelled_requests_total": self.cancelled,
            "penstock_llm_failed_requests_total": self.failed,
            "penstock_llm_prefill_tokens_total": self.prefill_tokens,
            "penstock_llm_generation_tokens_total": self.generation_tokens,
            "penstock_llm_wasted_tokens_total": self.wasted_tokens,
            **self._reported_by_engine(),
            **{
                series_name("penstock_llm_rejected_total", reason=reason): count
                for reason, count in self.rejected.items()
            },
        }

    def _reported_by_engine(self) -> Mapping[str, float]:
        """Counters that only some engines report, and the description of the cache."""
        counters = {
            "penstock_llm_cached_tokens_total": self.cached_tokens,
            "penstock_llm_preemptions_total": self.preemptions,
            "penstock_llm_spec_draft_tokens_total": self.spec_draft_tokens,
            "penstock_llm_spec_accepted_tokens_total": self.spec_accepted_tokens,
        }
        known: dict[str, float] = {n: count for n, count in counters.items() if count is not None}
        if self.cache_config:
            known[series_name("penstock_llm_cache_config_info", **self.cache_config)] = 1
        return known
