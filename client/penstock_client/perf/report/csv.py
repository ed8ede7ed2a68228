"""Results as CSV: a row for each load, with perf_analyzer's columns, or for each request."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock_client.perf.load.results import Results
from penstock_client.perf.report.figures import Figures

_PARTS = {
    "Server Queue": "queue_us",
    "Server Compute Input": "compute_input_us",
    "Server Compute Infer": "compute_infer_us",
    "Server Compute Output": "compute_output_us",
}
_FURTHER = {
    "Failed": "failed",
    "Responses/Second": "responses_per_second",
    "Tokens/Second": "tokens_per_second",
    "Goodput": "goodput",
}


def write_loads(path: Path, points: Sequence[Figures], model: str) -> None:
    """A row for each load; times are in microseconds, as perf_analyzer has them."""
    rows = [_row(point, model) for point in points]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def _row(point: Figures, model: str) -> dict[str, Any]:
    latency = point["latency_ms"] or {}
    load = point["load"]
    models: Sequence[Figures] = point["server"]["models"]
    server = next((each for each in models if each["model"] == model), {})
    parts = {title: server.get(key) for title, key in _PARTS.items()}
    inside = sum(value or 0.0 for value in parts.values())
    mean = latency.get("mean")
    first = "Request Rate" if "rate" in load else "Concurrency"
    return {
        first: load.get("rate", load.get("concurrency", load["label"])),
        "Inferences/Second": f"{point['inferences_per_second']:.3f}",
        # Sending and receiving are part of what lies between client and model.
        "Client Send": 0,
        "Network+Server Send/Recv": _rounded(None if mean is None else mean * 1e3 - inside),
        **{title: _rounded(value) for title, value in parts.items()},
        "Client Recv": 0,
        **{
            f"{name} latency": _rounded(latency[name] * 1e3 if latency else None)
            for name in ("p50", "p90", "p95", "p99")
        },
        "Avg latency": _rounded(None if mean is None else mean * 1e3),
        **{title: point.get(key, "") for title, key in _FURTHER.items()},
    }


def write_requests(path: Path, results: Sequence[Results]) -> None:
    """A row for each request of each load, with times in seconds after the first was due."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            "load payload due start first_response last_response end responses tokens error".split()
        )
        for load, each in enumerate(results):
            begin = float(each.due.min()) if len(each.due) else 0.0
            for times, counts in zip(each.times.tolist(), each.counts.tolist(), strict=True):
                payload, outcome, responses, tokens = counts
                shown = [f"{time - begin:.6f}" if time else "" for time in times]
                error = each.errors.get(outcome, "cut off" if outcome else "")
                writer.writerow([load, payload, *shown, responses, tokens, error])


def _rounded(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"
