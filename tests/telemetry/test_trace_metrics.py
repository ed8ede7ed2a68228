"""Metrics of the export of traces."""

from __future__ import annotations

from collections import Counter

from penstock.metrics.exposition import render
from penstock.telemetry.server_families import trace_families
from penstock.tracing.export import ExportCounts


def test_each_reason_of_a_loss_is_there_from_the_start() -> None:
    counts = ExportCounts(exported=7, dropped=Counter(refused=4))
    lines = "".join(render(trace_families(counts))).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "penstock_trace_spans_exported_total 7",
        'penstock_trace_spans_dropped_total{reason="buffer_full"} 0',
        'penstock_trace_spans_dropped_total{reason="exit"} 0',
        'penstock_trace_spans_dropped_total{reason="exporter_died"} 0',
        'penstock_trace_spans_dropped_total{reason="not_plain"} 0',
        'penstock_trace_spans_dropped_total{reason="refused"} 4',
    ]
    assert counts.dropped == {"refused": 4}
