"""Answers of the HTTP endpoint as values: server, repository index, statistics of models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock_client.reading.counters import (
    BatchCounts,
    CacheCounts,
    Durations,
    ModelCounters,
    ModelKey,
)
from penstock_client.reading.views import ModelEntry, ModelStatistics, statistics_of


@dataclass(frozen=True, slots=True)
class ServerAnswers:
    """The answers of the endpoint: `ready` is its readiness, `server` its name and version.

    `counters` and `batches`, by rows of a batch, are those of `/v2/models/stats`.
    """

    ready: bool
    server: str = ""
    states: Mapping[ModelKey, ModelEntry] = field(default_factory=dict)
    counters: Mapping[ModelKey, ModelCounters] = field(default_factory=dict)
    batches: Mapping[ModelKey, Mapping[int, BatchCounts]] = field(default_factory=dict)


def model_statistics(
    statistics: Any,
) -> tuple[dict[ModelKey, ModelCounters], dict[ModelKey, Mapping[int, BatchCounts]]]:
    """Counters and batches by model version, from `/v2/models/stats`."""
    counters: dict[ModelKey, ModelCounters] = {}
    batches: dict[ModelKey, Mapping[int, BatchCounts]] = {}
    for entry in statistics.get("model_stats", ()):
        found = statistics_of(entry)
        key = ModelKey(found.name, found.version)
        counters[key] = counters_of(found)
        batches[key] = {
            int(batch.get("batch_size", 0)): _batch(batch) for batch in entry.get("batch_stats", ())
        }
    return counters, batches


def counters_of(found: ModelStatistics) -> ModelCounters:
    """The counters as seconds and by phase, as the metrics page has them, too."""
    phases = (found.queue_ns, found.input_ns, found.infer_ns, found.output_ns)
    return ModelCounters(
        success=float(found.succeeded),
        inferences=float(found.inferences),
        executions=float(found.executions),
        failures={"all": float(found.failed)} if found.failed else {},
        durations=Durations(*(each / 1e9 for each in (found.request_ns, *phases))),
        cache=(
            CacheCounts(float(found.cache_hits), float(found.cache_misses))
            if found.cache_hits or found.cache_misses
            else None
        ),
    )


def _batch(batch: Mapping[str, Any]) -> BatchCounts:
    phases = ("compute_input", "compute_infer", "compute_output")
    return BatchCounts(_count(batch, "compute_infer"), *(_seconds(batch, each) for each in phases))


def _count(durations: Mapping[str, Any], name: str) -> float:
    return float(durations.get(name, {}).get("count", 0))


def _seconds(durations: Mapping[str, Any], name: str) -> float:
    return float(durations.get(name, {}).get("ns", 0)) / 1e9
