"""Growth of counters between two readings, where they may start over; means and quantiles of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf

from penstock_client.reading.counters import (
    BatchCounts,
    Buckets,
    CacheCounts,
    Durations,
    ModelCounters,
)


@dataclass(frozen=True, slots=True)
class Growth:
    """Increases over `seconds`; the counts are those of `ModelCounters`, each at least 0."""

    seconds: float
    success: float
    inferences: float
    executions: float
    failures: Mapping[str, float]
    durations: Durations | None
    cache: CacheCounts | None
    cancelled: Mapping[str, float]
    engine: Mapping[str, float]
    histograms: Mapping[str, Mapping[float, float]]


def growth(before: ModelCounters, now: ModelCounters, seconds: float) -> Growth:
    """The increases from `before` to `now`.

    If the model was loaded again between them, or its server started again, what it has counted
    since: one count that has become less shows it for all of them. The process of its engine may
    start over alone.
    """
    former = ModelCounters() if _started_over(before, now) else before
    return Growth(
        seconds=seconds,
        success=increase(former.success, now.success),
        inferences=increase(former.inferences, now.inferences),
        executions=increase(former.executions, now.executions),
        failures=_each(former.failures, now.failures),
        durations=_durations(former.durations, now.durations),
        cache=_cache(former.cache, now.cache),
        cancelled=_each(former.cancelled, now.cancelled),
        engine=_each(before.engine, now.engine),
        histograms={
            name: increases(before.histograms.get(name, {}), buckets)
            for name, buckets in now.histograms.items()
        },
    )


def batch_growth(
    before: Mapping[int, BatchCounts], now: Mapping[int, BatchCounts]
) -> dict[int, BatchCounts]:
    """The increases by batch size."""
    return {
        rows: BatchCounts(
            *(
                increase(
                    getattr(before.get(rows, BatchCounts()), each.name), getattr(batch, each.name)
                )
                for each in fields(BatchCounts)
            )
        )
        for rows, batch in now.items()
    }


def _started_over(before: ModelCounters, now: ModelCounters) -> bool:
    counts = (
        (before.success, now.success),
        (before.inferences, now.inferences),
        (before.executions, now.executions),
        (sum(before.failures.values()), sum(now.failures.values())),
    )
    return any(former > count for former, count in counts)


def _each(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    return {name: increase(before.get(name, 0.0), count) for name, count in now.items()}


def _durations(before: Durations | None, now: Durations | None) -> Durations | None:
    if now is None:
        return None
    former = before or Durations()
    names = (each.name for each in fields(Durations))
    return Durations(*(increase(getattr(former, name), getattr(now, name)) for name in names))


def _cache(before: CacheCounts | None, now: CacheCounts | None) -> CacheCounts | None:
    if now is None:
        return None
    former = before or CacheCounts()
    return CacheCounts(increase(former.hits, now.hits), increase(former.misses, now.misses))


def increase(before: float, now: float) -> float:
    """How much a counter grew; after a restart of what counts, what it has counted since."""
    return now - before if now >= before else now


def mean(total: float, count: float) -> float | None:
    """The average of `count` observations; `None` without any."""
    return total / count if count > 0 else None


def increases(before: Mapping[float, float], now: Mapping[float, float]) -> dict[float, float]:
    """The increase of each bucket; all count from the start if one of them has become less."""
    started_over = any(now.get(bound, 0.0) < count for bound, count in before.items())
    former = {} if started_over else before
    return {bound: count - former.get(bound, 0.0) for bound, count in now.items()}


def quantile(buckets: Buckets, wanted: float) -> float | None:
    """The value below which a share of `wanted` lies, as Prometheus estimates it.

    Inside of a bucket observations are taken for evenly spread; beyond the last finite bound the
    answer is that bound. `None` without an observation.
    """
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    rank = wanted * total
    lower, below = 0.0, 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= rank and count > below:
            if bound == inf:
                return lower
            share = max(0.0, rank - below) / (count - below)
            return min(bound, lower + (bound - lower) * share)  # rounding may lead beyond it
        lower, below = bound, max(below, count)
    return lower
