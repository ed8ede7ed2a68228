"""Trace ids as exemplars of the latency histograms, on the page in OpenMetrics."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from harness.serving import Served, serving
from tracing.served.calls import request, streamed
from tracing.served.models import write_models

_ACCEPT = {"accept": "application/openmetrics-text; version=1.0.0"}


def _exemplars(server: Served) -> dict[tuple[str, str], set[str]]:
    """The trace ids in the buckets of each histogram, by its name and model."""
    with urllib.request.urlopen(urllib.request.Request(server.metrics, headers=_ACCEPT)) as page:
        families = text_string_to_metric_families(page.read().decode())
        found: dict[tuple[str, str], set[str]] = {}
        for family in families:
            for sample in family.samples:
                if sample.exemplar is not None:
                    key = family.name, sample.labels["model"]
                    found.setdefault(key, set()).add(sample.exemplar.labels["trace_id"])
    return found


def test_traced_requests_are_exemplars(tmp_path: Path) -> None:
    repository = write_models(tmp_path / "models")
    options = [
        f"--trace-config=triton,file={tmp_path / 'traces'}",
        "--trace-config=rate=1",
        "--allow-trace-control=true",
        "--metrics-config=histogram_latencies=true",
    ]
    with serving(repository, tmp_path / "log", *options) as server:
        streamed(server.grpc, request("stream", 2, id="1"))
        assert _exemplars(server) == {}  # no trace of it can be found anywhere
        level = json.dumps({"trace_level": ["TIMESTAMPS"]}).encode()
        urllib.request.urlopen(f"http://{server.http}/v2/trace/setting", level).close()
        told = streamed(server.grpc, request("stream", 2, id="2"))["2"]
        assert _exemplars(server) == {
            ("penstock_queue_duration_seconds", "stream"): {told["trace_id"]},
            ("nv_inference_first_response_histogram_ms", "stream"): {told["trace_id"]},
        }
