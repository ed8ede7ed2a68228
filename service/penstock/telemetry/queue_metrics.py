"""Histograms of dynamic batching: batch sizes, and time in the queue.

Both are derived from the model statistics; Triton has no metrics of these names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import inf

from penstock.inflight.statistics import QUEUE_BOUNDS
from penstock.metrics.exposition import Family, MetricKind, Series
from penstock.models.serving.answers import ModelStatistics
from penstock.telemetry.labels import model_labels

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
