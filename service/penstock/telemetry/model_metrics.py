"""Counters of models: requests, outcomes, and durations by phase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from penstock.inflight.statistics import FailureReason, Statistics
from penstock.metrics.exposition import Family, MetricKind, Series
from penstock.models.serving.answers import ModelStatistics
from penstock.telemetry.labels import model_labels


@dataclass(frozen=True, slots=True)
class _Counted:
    """A counter of every model; one that is a `latency` sums up durations and can be disabled."""

    name: str
    help: str
    value: Callable[[Statistics], int]
    kind: MetricKind = MetricKind.COUNTER
    latency: bool = False

    def family(self, models: Iterable[ModelStatistics]) -> Family:
        series = (Series(model_labels(model), self.value(model.statistics)) for model in models)
        return Family(self.name, self.help, self.kind, series)


_SUCCESS = _Counted(
    "nv_inference_request_success",
    "Number of successful inference requests, all batch sizes",
    lambda counted: counted.success.count,
)
_PER_MODEL = (
    _Counted(
        "nv_inference_count",
        "Number of inferences performed (does not include cached requests)",
        lambda counted: counted.inference_count,
    ),
    _Counted(
        "nv_inference_exec_count",
        "Number of model executions performed (does not include cached requests)",
        lambda counted: counted.execution_count,
    ),
    _Counted(
        "nv_inference_request_duration_us",
        "Cumulative inference request duration in microseconds (includes cached requests)",
        lambda counted: counted.success.ns // 1000,
        latency=True,
    ),
    _Counted(
        "nv_inference_queue_duration_us",
        "Cumulative inference queuing duration in microseconds (includes cached requests)",
        lambda counted: counted.queue.ns // 1000,
        latency=True,
    ),
    _Counted(
        "nv_inference_compute_input_duration_us",
        "Cumulative compute input duration in microseconds (does not include cached requests)",
        lambda counted: counted.compute_input.ns // 1000,
        latency=True,
    ),
    _Counted(
        "nv_inference_compute_infer_duration_us",
        "Cumulative compute inference duration in microseconds (does not include cached requests)",
        lambda counted: counted.compute_infer.ns // 1000,
        latency=True,
    ),
    _Counted(
        "nv_inference_compute_output_duration_us",
        "Cumulative inference compute output duration in microseconds"
        " (does not include cached requests)",
        lambda counted: counted.compute_output.ns // 1000,
        latency=True,
    ),
)
_PER_CACHED_MODEL = (
    _Counted(
        "nv_cache_num_hits_per_model",
        "Number of cache hits per model",
        lambda counted: counted.cache_hit.count,
    ),
    _Counted(
        "nv_cache_hit_duration_per_model",
        "Total cache hit duration per model, in microseconds",
        lambda counted: counted.cache_hit.ns // 1000,
        latency=True,
    ),
    _Counted(
        "nv_cache_num_misses_per_model",
        "Number of cache misses per model",
        lambda counted: counted.cache_miss.count,
    ),
    _Counted(
        "nv_cache_miss_duration_per_model",
        "Total cache miss (insert+lookup) duration per model, in microseconds",
        lambda counted: counted.cache_miss.ns // 1000,
        latency=True,
    ),
)
_PENDING = _Counted(
    "nv_inference_pending_request_count",
    "Instantaneous number of pending requests awaiting execution per-model.",
    lambda counted: counted.pending,
    MetricKind.GAUGE,
)


def model_families(models: list[ModelStatistics], *, latencies: bool) -> Iterator[Family]:
    """The counters of models; those of latencies only if enabled (ME-18)."""
    yield _SUCCESS.family(models)
    yield _failures(models)
    for counted in _PER_MODEL:
        if latencies or not counted.latency:
            yield counted.family(models)
    cached = [model for model in models if model.statistics.cached]
    for counted in _PER_CACHED_MODEL:
        if latencies or not counted.latency:
            yield counted.family(cached)
    yield _PENDING.family(models)


def _failures(models: list[ModelStatistics]) -> Family:
    """Failures by reason; each reason is listed from the start, at 0 (ME-04)."""
    series = (
        Series(
            model_labels(model, ("reason", reason.value)),
            model.statistics.failures[reason],
        )
        for model in models
        for reason in sorted(FailureReason)
    )
    help_text = "Number of failed inference requests, all batch sizes"
    return Family("nv_inference_request_failure", help_text, MetricKind.COUNTER, series)


def load_times(models: Iterable[ModelStatistics]) -> Family:
    """The duration of each version's last load, in seconds (ME-13)."""
    series = (Series(model_labels(model), model.load_seconds) for model in models)
    help_text = "Model load time in seconds"
    return Family("nv_model_load_duration_secs", help_text, MetricKind.GAUGE, series)
