"""Metadata and statistics as dictionaries, with the names of the protocol's JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from penstock.inflight.statistics import Duration
from penstock.models.serving.answers import ModelMetadata, ModelStatistics
from penstock.server.answers import ServerMetadata

_DURATIONS = (
    *("success", "fail", "queue", "compute_input", "compute_infer", "compute_output"),
    *("cache_hit", "cache_miss"),
)
_OF_RESPONSE = ("compute_infer", "compute_output", "success", "fail", "empty_response", "cancel")
_OF_BATCH = ("compute_input", "compute_infer", "compute_output")


def server_view(metadata: ServerMetadata) -> dict[str, Any]:
    """Name, version and extensions of a server."""
    return {name: _plain(value) for name, value in asdict(metadata).items()}


def model_view(metadata: ModelMetadata) -> dict[str, Any]:
    """Tensors and versions of a model."""
    return {name: _plain(value) for name, value in asdict(metadata).items()}


def statistics_view(model: ModelStatistics) -> dict[str, Any]:
    """The counters of a model version."""
    counted = model.statistics
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": counted.last_inference,
        "inference_count": counted.inference_count,
        "execution_count": counted.execution_count,
        "inference_stats": _durations(counted, _DURATIONS),
        "response_stats": {
            str(index): _durations(one, _OF_RESPONSE)
            for index, one in sorted(counted.responses.items())
        },
        "batch_stats": [
            {"batch_size": size, **_durations(batch, _OF_BATCH)}
            for size, batch in sorted(counted.batches.items())
        ],
        "memory_usage": [],
    }


def _durations(counted: Any, names: tuple[str, ...]) -> dict[str, dict[str, int]]:
    durations: dict[str, Duration] = {name: getattr(counted, name) for name in names}
    return {name: {"count": each.count, "ns": each.ns} for name, each in durations.items()}


def _plain(value: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value
