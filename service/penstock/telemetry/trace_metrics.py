"""Metrics of the export of traces: spans that a collector has taken, and spans that were lost."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.metrics.exposition import Family, MetricKind, Series
from penstock.tracing.export import ExportCounts

_REASONS = ("buffer_full", "exit", "exporter_died", "not_plain", "refused")


def trace_families(counts: ExportCounts) -> Iterator[Family]:
    """The families of the OpenTelemetry mode.

    Each reason of a loss is listed from the start, at 0: of a series that begins with the first
    loss Prometheus would see no increase.
    """
    yield _family(
        "exported_total",
        "Spans that the collector of traces has taken",
        Series((), counts.exported),
    )
    reasons = sorted({*_REASONS, *counts.dropped})
    lost = (Series((("reason", name),), counts.dropped[name]) for name in reasons)
    yield _family("dropped_total", "Spans that were lost, by the reason", *lost)


def _family(name: str, text: str, *series: Series) -> Family:
    return Family(f"penstock_trace_spans_{name}", text, MetricKind.COUNTER, series)
