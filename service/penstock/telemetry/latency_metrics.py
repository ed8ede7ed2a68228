"""Latency metrics as summaries and histograms, enabled by `--metrics-config` (ME-14, ME-15)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.inflight.statistics import Duration, Statistics, SummarizedDuration
from penstock.metrics.exposition import Family, MetricKind, Series
from penstock.metrics.measurement import Quantile
from penstock.models.loading.statistics_of import FIRST_RESPONSE
from penstock.models.serving.answers import ModelStatistics
from penstock.telemetry.labels import model_labels


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
