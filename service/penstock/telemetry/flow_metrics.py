"""Metrics of requests in flight, cancellations by phase, and tasks; idle, they show leaks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from penstock.inflight.statistics import Phase
from penstock.metrics.exposition import Family, MetricKind, Series
from penstock.models.serving.answers import ModelStatistics
from penstock.telemetry.labels import model_labels


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
        return len(asyncio.all_tasks())
    except RuntimeError:
        return None
