"""Families of the metrics page: models, batching, latencies, requests in flight, model processes,
engines under their own names, and the export of traces.

Triton has no metrics of batching histograms, of tasks and of model processes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

from penstock.core.full_names import split_name
from penstock.inflight.statistics import (
    QUEUE_BOUNDS,
    Duration,
    FailureReason,
    Phase,
    Statistics,
    SummarizedDuration,
)
from penstock.metrics.exposition import Family, Labels, MetricKind, Series
from penstock.metrics.language_model import LANGUAGE_MODEL_METRICS, TRITON_VLLM_METRICS, VLLM_NAMES
from penstock.metrics.measurement import Quantile
from penstock.models.loading.statistics_of import FIRST_RESPONSE
from penstock.models.serving.answers import (
    EngineHistogram,
    EngineMetric,
    Gauge,
    ModelStatistics,
)


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


BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Upper bounds of the buckets of batch sizes, in rows."""


def queue_families(models: Iterable[ModelStatistics]) -> Iterator[Family]:
    """The histograms of every model with executions."""
    busy = [model for model in models if model.statistics.execution_count]
    if not busy:
        return
    yield Family(
        "penstock_batch_size",
        "Rows per model execution",
        MetricKind.HISTOGRAM,
        (_batch_sizes(model) for model in busy),
    )
    yield Family(
        "penstock_queue_duration_seconds",
        "Time that successful requests waited for an instance",
        MetricKind.HISTOGRAM,
        (_queue_times(model) for model in busy),
    )


def _batch_sizes(model: ModelStatistics) -> Series:
    counts = {rows: batch.compute_infer.count for rows, batch in model.statistics.batches.items()}
    buckets = tuple(
        (bound, sum(count for rows, count in counts.items() if rows <= bound))
        for bound in (*BATCH_SIZES, inf)
    )
    total = sum(rows * count for rows, count in counts.items())
    return Series(model_labels(model), total, buckets)


def _queue_times(model: ModelStatistics) -> Series:
    counted = model.statistics
    buckets = zip((*QUEUE_BOUNDS, inf), accumulate(counted.queue_times), strict=True)
    traced = counted.queue_exemplars
    return Series(
        model_labels(model),
        counted.queue.ns / 1e9,
        tuple(buckets),
        exemplars=tuple(map(traced.get, range(len(QUEUE_BOUNDS) + 1))) if traced else (),
    )


def flow_families(models: Iterable[ModelStatistics]) -> Iterator[Family]:
    """Metrics of every model; and the tasks of the event loop, if one runs in this thread."""
    models = list(models)
    if models:
        yield Family(
            "penstock_cancelled_total",
            "Inference requests that were cancelled, by how far they had come",
            MetricKind.COUNTER,
            (_cancelled(model, phase) for model in models for phase in Phase),
        )
        yield Family(
            "penstock_in_flight_requests",
            "Inference requests that are admitted and not answered in full",
            MetricKind.GAUGE,
            (Series(model_labels(model), model.statistics.in_flight) for model in models),
        )
    tasks = _tasks()
    if tasks is not None:
        text = "Tasks of the server's event loop"
        yield Family("penstock_event_loop_tasks", text, MetricKind.GAUGE, (Series((), tasks),))


def _cancelled(model: ModelStatistics, phase: Phase) -> Series:
    labels = model_labels(model, ("phase", phase.value))
    return Series(labels, model.statistics.cancelled[phase])


def _tasks() -> int | None:
    try:
        return len(asyncio.all_tasks() - {asyncio.current_task()})  # which writes this page
    except RuntimeError:
        return None


_NO_NAME = re.compile(r"[^a-zA-Z0-9_:]|^(?=[0-9]|$)")
"""Places of an underscore in a family's name: other characters, and before a leading digit."""

_TAKEN = ("model", "version", "le")
"""Labels that are the server's own."""


def engine_families(
    gauges: Iterable[Gauge],
    histograms: Iterable[EngineHistogram] = (),
    *,
    vllm_names: bool = False,
) -> Iterator[Family]:
    """One family per name; numbers whose names end with `_total` are counters.

    With `vllm_names`, families that vLLM has too are there a second time, under its names.
    """
    numbers: dict[str, list[Gauge]] = {}
    for gauge in gauges:
        numbers.setdefault(_NO_NAME.sub("_", gauge.family), []).append(gauge)
    for name, found in numbers.items():
        kind = MetricKind.COUNTER if name.endswith("_total") else MetricKind.GAUGE
        yield Family(name, _description(name), kind, (_number(one) for one in found))
    for name, theirs in VLLM_NAMES.items() if vllm_names else ():
        if name in numbers and theirs not in numbers:
            series = (_number(one) for one in numbers[name])
            yield Family(theirs, _description(name), MetricKind.GAUGE, series)
    observed: dict[str, list[EngineHistogram]] = {}
    for histogram in histograms:
        name = _NO_NAME.sub("_", histogram.family)
        if name not in numbers:
            observed.setdefault(name, []).append(histogram)
    for name, each in observed.items():
        series = (_distribution(one) for one in each)
        yield Family(name, _description(name), MetricKind.HISTOGRAM, series)


def _description(name: str) -> str:
    declared = LANGUAGE_MODEL_METRICS.get(name) or TRITON_VLLM_METRICS.get(name)
    return "Reported by the model's engine" if declared is None else declared.description


def _engine_labels(one: EngineMetric) -> Labels:
    """Each label once, whatever the backend has named its own."""
    own = {name: value for name, value in one.labels if name not in _TAKEN}
    return (*own.items(), ("model", one.model), ("version", one.version))


def _number(one: Gauge) -> Series:
    return Series(_engine_labels(one), one.value)


def _distribution(one: EngineHistogram) -> Series:
    histogram = one.histogram
    return Series(
        _engine_labels(one), histogram.total, histogram.buckets, exemplars=histogram.exemplars
    )


Label = tuple[str, str]


def model_labels(model: ModelStatistics, *more: Label) -> tuple[Label, ...]:
    """Tags of the configuration (C-31), GPU, model with its namespace (ME-02), `more`, and version,
    sorted by name.
    """
    own, name = split_name(model.name)
    if namespace := own or model.namespace:
        more = (("namespace", namespace), *more)
    labels = (("model", name), *more, ("version", model.version))
    if model.gpu_uuid:
        labels = (("gpu_uuid", model.gpu_uuid), *labels)
    if not model.tags:
        return labels
    tags = sorted((f"_{tag}", value) for tag, value in model.tags.items())
    return (*tags, *labels)


@dataclass(frozen=True, slots=True)
class _Summarized:
    """A duration with a summary; `cached`: whether for models with a cache, without, or both."""

    name: str
    help: str
    duration: Callable[[Statistics], Duration]
    cached: Sequence[bool] = (True, False)


_SUMMARIES = (
    _Summarized(
        "nv_inference_request_summary_us",
        "Summary of inference request duration in microseconds (includes cached requests)",
        lambda counted: counted.success,
        cached=(False,),
    ),
    _Summarized(
        "nv_inference_queue_summary_us",
        "Summary of inference queuing duration in microseconds (includes cached requests)",
        lambda counted: counted.queue,
    ),
    _Summarized(
        "nv_inference_compute_input_summary_us",
        "Cumulative compute input duration in microseconds (does not include cached requests)",
        lambda counted: counted.compute_input,
    ),
    _Summarized(
        "nv_inference_compute_infer_summary_us",
        "Cumulative compute inference duration in microseconds (does not include cached requests)",
        lambda counted: counted.compute_infer,
    ),
    _Summarized(
        "nv_inference_compute_output_summary_us",
        "Cumulative inference compute output duration in microseconds"
        " (does not include cached requests)",
        lambda counted: counted.compute_output,
    ),
    _Summarized(
        "nv_cache_hit_summary_per_model",
        "Summary of cache hit counts/durations per model, in microseconds.",
        lambda counted: counted.cache_hit,
        cached=(True,),
    ),
    _Summarized(
        "nv_cache_miss_summary_per_model",
        "Summary of cache miss counts/durations per model, in microseconds.",
        lambda counted: counted.cache_miss,
        cached=(True,),
    ),
)


def latency_families(
    models: Iterable[ModelStatistics], quantiles: Sequence[Quantile]
) -> Iterator[Family]:
    """Families of the models that measure distributions; others have sums only and are left out."""
    models = list(models)
    for summarized in _SUMMARIES:
        yield _summaries(summarized, models, [q.quantile for q in quantiles])
    yield Family(
        FIRST_RESPONSE,
        "Duration from request to first response in milliseconds",
        MetricKind.HISTOGRAM,
        (
            Series(
                model_labels(model),
                histogram.total,
                histogram.buckets,
                exemplars=histogram.exemplars,
            )
            for model in models
            if (histogram := model.statistics.first_response) is not None
        ),
    )


def _summaries(
    summarized: _Summarized, models: Iterable[ModelStatistics], wanted: Sequence[float]
) -> Family:
    series = (
        _summary(model, duration, wanted)
        for model in models
        if isinstance(duration := summarized.duration(model.statistics), SummarizedDuration)
        and model.statistics.cached in summarized.cached
    )
    return Family(summarized.name, summarized.help, MetricKind.SUMMARY, series)


def _summary(
    model: ModelStatistics, duration: SummarizedDuration, wanted: Sequence[float]
) -> Series:
    found = tuple(zip(wanted, duration.summary.quantiles(wanted), strict=True))
    total = duration.ns // 1000
    return Series(model_labels(model), total, count=duration.count, quantiles=found)
