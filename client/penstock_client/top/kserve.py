"""Answers of the HTTP endpoint as values: server, repository index, statistics of models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock_client.top.counters import (
    BatchCounts,
    CacheCounts,
    Durations,
    ModelCounters,
    ModelKey,
)


@dataclass(frozen=True, slots=True)
class VersionState:
    """The state of a model version in the repository index; `state` is empty if never loaded."""

    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ServerAnswers:
    """What the endpoint tells: `ready` is its readiness, `server` its name and version.

    `counters` and `batches`, by rows of a batch, are those of `/v2/models/stats`.
    """

    ready: bool
    server: str = ""
    states: Mapping[ModelKey, VersionState] = field(default_factory=dict)
    counters: Mapping[ModelKey, ModelCounters] = field(default_factory=dict)
    batches: Mapping[ModelKey, Mapping[int, BatchCounts]] = field(default_factory=dict)


def server_name(metadata: Any) -> str:
    """Name and version of the server, from `/v2`."""
    return f"{metadata.get('name', '')} {metadata.get('version', '')}".strip()


def version_states(index: Any) -> dict[ModelKey, VersionState]:
    """States by model version, from `/v2/repository/index`."""
    return {
        ModelKey(entry["name"], str(entry.get("version", ""))): VersionState(
            entry.get("state", ""), entry.get("reason", "")
        )
        for entry in index
    }


def model_statistics(
    statistics: Any,
) -> tuple[dict[ModelKey, ModelCounters], dict[ModelKey, Mapping[int, BatchCounts]]]:
    """Counters and batches by model version, from `/v2/models/stats`.

    A count that is 0 may be missing, and numbers may be strings, as in Triton's JSON of gRPC.
    """
    counters: dict[ModelKey, ModelCounters] = {}
    batches: dict[ModelKey, Mapping[int, BatchCounts]] = {}
    for entry in statistics.get("model_stats", ()):
        key = ModelKey(entry["name"], str(entry.get("version", "")))
        counters[key] = _counters(entry)
        batches[key] = {
            int(batch.get("batch_size", 0)): _batch(batch) for batch in entry.get("batch_stats", ())
        }
    return counters, batches


def _counters(entry: Mapping[str, Any]) -> ModelCounters:
    found = entry.get("inference_stats", {})
    phases = ("success", "queue", "compute_input", "compute_infer", "compute_output")
    failures = _count(found, "fail")
    hits, misses = _count(found, "cache_hit"), _count(found, "cache_miss")
    return ModelCounters(
        success=_count(found, "success"),
        inferences=float(entry.get("inference_count", 0)),
        executions=float(entry.get("execution_count", 0)),
        failures={"all": failures} if failures else {},
        durations=Durations(*(_seconds(found, each) for each in phases)),
        cache=CacheCounts(hits, misses) if hits or misses else None,
    )


def _batch(batch: Mapping[str, Any]) -> BatchCounts:
    phases = ("compute_input", "compute_infer", "compute_output")
    return BatchCounts(_count(batch, "compute_infer"), *(_seconds(batch, each) for each in phases))


def _count(durations: Mapping[str, Any], name: str) -> float:
    return float(durations.get(name, {}).get("count", 0))


def _seconds(durations: Mapping[str, Any], name: str) -> float:
    return float(durations.get(name, {}).get("ns", 0)) / 1e9
