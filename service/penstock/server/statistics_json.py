"""Statistics as dictionaries, with the names of the protocol's JSON."""

from __future__ import annotations

from typing import Any

from penstock.inflight.statistics import Duration
from penstock.models.serving.answers import ModelStatistics

_DURATIONS = (
    *("success", "fail", "queue", "compute_input", "compute_infer", "compute_output"),
    *("cache_hit", "cache_miss"),
)
_OF_RESPONSE = ("compute_infer", "compute_output", "success", "fail", "empty_response", "cancel")
_OF_BATCH = ("compute_input", "compute_infer", "compute_output")


def statistics_json(model: ModelStatistics) -> dict[str, Any]:
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
