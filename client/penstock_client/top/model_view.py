"""What is shown of one model: a row of the table, and its details."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock_client.reading.counters import BatchCounts, Durations, ModelCounters, ModelKey
from penstock_client.reading.growth import Growth, batch_growth, growth, mean, quantile
from penstock_client.reading.views import ModelEntry

CANCELLED = "CANCELED"
"""The reason of failures that clients asked for: they are not errors."""

TOKENS = ("penstock_llm_generation_tokens_total", "vllm:generation_tokens_total")
"""Counters of generated tokens, of which a model has one: ours, and that of Triton's vLLM."""

_BATCH_SIZES = "penstock_batch_size"
"""The histogram that is shown by single sizes instead, from the statistics."""

PHASES = ("queue", "compute_input", "compute_infer", "compute_output")
QUANTILES = (0.5, 0.95, 0.99)


class Pair(NamedTuple):
    """Two readings of a model's counters that are `seconds` apart; the first may be missing."""

    before: ModelCounters | None
    now: ModelCounters
    seconds: float

    @property
    def growth(self) -> Growth | None:
        if self.before is None or self.seconds <= 0:
            return None
        return growth(self.before, self.now, self.seconds)


class BatchPair(NamedTuple):
    """Two readings of a model's batches that are `seconds` apart; the first may be missing."""

    before: Mapping[int, BatchCounts] | None
    now: Mapping[int, BatchCounts]
    seconds: float


@dataclass(frozen=True, slots=True)
class PhaseView:
    """Seconds of a phase, on average of a request: in the interval, and since the load."""

    name: str
    now: float | None
    overall: float | None


@dataclass(frozen=True, slots=True)
class BatchView:
    """Executions of one batch size: since the load, per second now, and seconds of one of them."""

    rows: int
    executions: float
    rate: float | None
    compute: float | None


@dataclass(frozen=True, slots=True)
class CountView:
    """A count by name: since the load, and per second now."""

    name: str
    count: float
    rate: float | None


@dataclass(frozen=True, slots=True)
class Distribution:
    """Quantiles of a metric, in its own unit, by share (0 to 1)."""

    name: str
    quantiles: Mapping[float, float]


@dataclass(frozen=True, slots=True)
class Details:
    """What only the view of one model shows. `engine` are numbers that its backend reports."""

    phases: Sequence[PhaseView] = ()
    batches: Sequence[BatchView] = ()
    failures: Sequence[CountView] = ()
    cancelled: Sequence[CountView] = ()
    engine: Sequence[CountView] = ()
    distributions: Sequence[Distribution] = ()


@dataclass(frozen=True, slots=True)
class ModelView:
    """A model version. Rates are per second and durations seconds, averages over the interval;
    `None` where nothing is known, or nothing happened. `batch` is rows of an execution, `cache`
    the share of hits, `memory` bytes of its processes.
    """

    key: ModelKey
    state: str
    reason: str
    requests: float | None
    inferences: float | None
    batch: float | None
    pending: float | None
    in_flight: float | None
    latency: float | None
    queue: float | None
    compute: float | None
    errors: float | None
    cache: float | None
    tokens: float | None
    memory: float | None
    details: Details

    def sort_value(self, sort: str) -> float | None:
        """What it is sorted by, for all `SORTS` but the name."""
        values = {
            "rate": self.requests,
            "queue": self.pending,
            "latency": self.latency,
            "errors": self.errors,
        }
        return values[sort]


def model_view(
    key: ModelKey,
    pairs: Sequence[Pair],
    batches: BatchPair | None,
    state: ModelEntry,
    memory: float | None,
) -> ModelView:
    """The view of a model; the first of `pairs` that tells something is taken for it."""
    counted = pairs[0] if pairs else Pair(None, ModelCounters(), 0.0)
    timed = next((pair for pair in pairs if pair.now.durations is not None), counted)
    grown, grown_timed = counted.growth, timed.growth
    now = counted.now
    return ModelView(
        key=key,
        state=state.state,
        reason=state.reason,
        requests=_rate(grown, grown.success if grown else 0.0),
        inferences=_rate(grown, grown.inferences if grown else 0.0),
        batch=mean(grown.inferences, grown.executions) if grown else None,
        pending=now.pending,
        in_flight=now.in_flight,
        **_averages(grown_timed),
        errors=_rate(grown, _errors(grown.failures) if grown else 0.0),
        cache=_hit_share(grown),
        tokens=_tokens(now, grown),
        memory=memory,
        details=Details(
            phases=list(_phases(timed, grown_timed)),
            batches=list(_batches(batches)),
            failures=_counts(now.failures, grown.failures if grown else None, counted.seconds),
            cancelled=_counts(now.cancelled, grown.cancelled if grown else None, counted.seconds),
            engine=list(_engine(now, grown)),
            distributions=list(_distributions(now, grown)),
        ),
    )


def _rate(grown: Growth | None, count: float) -> float | None:
    return None if grown is None else count / grown.seconds


def _errors(failures: Mapping[str, float]) -> float:
    return sum(count for reason, count in failures.items() if reason != CANCELLED)


def _hit_share(grown: Growth | None) -> float | None:
    if grown is None or grown.cache is None:
        return None
    return mean(grown.cache.hits, grown.cache.hits + grown.cache.misses)


def _averages(grown: Growth | None) -> dict[str, float | None]:
    """Seconds of a request, in total, in the queue and in the model."""
    if grown is None or grown.durations is None:
        return {"latency": None, "queue": None, "compute": None}
    took = grown.durations
    compute = took.compute_input + took.compute_infer + took.compute_output
    return {
        "latency": mean(took.request, grown.success),
        "queue": mean(took.queue, grown.success),
        "compute": mean(compute, _executed(grown)),
    }


def _executed(counted: Growth | ModelCounters) -> float:
    """Requests that were executed: hits of the cache were not."""
    return counted.success - (counted.cache.hits if counted.cache else 0.0)


def _tokens(now: ModelCounters, grown: Growth | None) -> float | None:
    name = next((name for name in TOKENS if name in now.engine), None)
    if name is None or grown is None:
        return None
    return grown.engine[name] / grown.seconds


def _phases(pair: Pair, grown: Growth | None) -> Iterator[PhaseView]:
    overall = pair.now.durations
    if overall is None:
        return
    recent = grown.durations if grown is not None else None
    for name in PHASES:
        yield PhaseView(
            name,
            _phase(name, recent, grown) if grown and recent else None,
            _phase(name, overall, pair.now),
        )


def _phase(name: str, took: Durations, counted: Growth | ModelCounters) -> float | None:
    seconds: float = getattr(took, name)
    return mean(seconds, counted.success if name == "queue" else _executed(counted))


def _batches(pair: BatchPair | None) -> Iterator[BatchView]:
    if pair is None:
        return
    grown = None if pair.before is None else batch_growth(pair.before, pair.now)
    for rows, batch in sorted(pair.now.items()):
        compute = batch.compute_input + batch.compute_infer + batch.compute_output
        rate = grown[rows].executions / pair.seconds if grown and pair.seconds > 0 else None
        yield BatchView(rows, batch.executions, rate, mean(compute, batch.executions))


def _counts(
    now: Mapping[str, float], grown: Mapping[str, float] | None, seconds: float
) -> list[CountView]:
    return [
        CountView(name, count, grown[name] / seconds if grown else None)
        for name, count in sorted(now.items())
    ]


def _engine(now: ModelCounters, grown: Growth | None) -> Iterator[CountView]:
    """The engine's numbers; those that count have a rate."""
    for name, value in now.engine.items():
        counts = name.endswith("_total") and grown is not None
        yield CountView(name, value, _rate(grown, grown.engine[name]) if counts and grown else None)


def _distributions(now: ModelCounters, grown: Growth | None) -> Iterator[Distribution]:
    """Quantiles of the interval, or since the load while there was nothing in the interval."""
    for name, buckets in sorted(now.histograms.items()):
        if name == _BATCH_SIZES:
            continue
        recent = grown.histograms[name] if grown is not None else {}
        chosen = recent if any(recent.values()) else buckets
        found = {share: quantile(chosen, share) for share in QUANTILES}
        known = {share: value for share, value in found.items() if value is not None}
        if known:
            yield Distribution(name, known)
    for name, values in sorted(now.quantiles.items()):
        known = {share: value for share, value in values.items() if value == value}
        if known:
            yield Distribution(name, known)
